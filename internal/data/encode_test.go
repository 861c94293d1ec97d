package data

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// words is an Encoder whose ids are the lengths of lines: it may be cut behind a line alone.
type words struct{ slow bool }

func (words) Vocab() int { return 1 << 30 }

func (words) Cut(text []byte, most int) int { return bytes.LastIndexByte(text[:most], '\n') + 1 }

func (e words) AppendEncode(dst []int32, text []byte) ([]int32, error) {
	if e.slow && len(text)%3 == 0 {
		time.Sleep(time.Millisecond)
	}
	if i := bytes.IndexByte(text, '!'); i >= 0 {
		return dst, badText(i)
	}
	for line := range bytes.Lines(text) {
		dst = append(dst, int32(len(line)))
	}
	return dst, nil
}

// A text is cut where the encoder says, however far that is.
func TestEncodeCutsWhereItMay(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, lengths := range [][]int{{5, 2_000_000, 3, 1, 700_000}, {pieceBytes, pieceBytes, 1}, {pieceBytes + 1, pieceBytes - 1, 2},
		{3_000_000}} {
		var text strings.Builder
		var want []int32
		for _, n := range lengths {
			text.WriteString(strings.Repeat("x", n-1) + "\n")
			want = append(want, int32(n))
		}
		write(t, "text", []byte(text.String()))
		write(t, "next", []byte("ab\nc"))
		c, err := openText([]string{"text", "next"}, words{})
		if err != nil {
			t.Fatal(err)
		}
		if got := all(t, c); !slices.Equal(got, append(want, 3, 1)) {
			t.Errorf("lengths %v, want %v", got, want)
		}
		closed(t, c)
	}
	write(t, "text", []byte(strings.Repeat("x\n", pieceBytes)+"ab!"))
	if _, err := openText([]string{"next", "text"}, words{}); err == nil ||
		err.Error() != fmt.Sprintf("text, byte %d: bad text", 2*pieceBytes+2) {
		t.Errorf("error %v", err)
	}
}

func TestEncodeAllKeepsTheOrder(t *testing.T) {
	errEnough := errors.New("enough")
	for _, stop := range []int{0, 1, 50, 200} {
		given, taken := 0, 0
		err := EncodeAll(words{slow: true}, func() ([]byte, bool) {
			if given == 200 {
				return nil, false
			}
			given++
			return bytes.Repeat([]byte("x"), given), true
		}, func(text []byte, ids []int32, err error) error {
			if taken == stop {
				return errEnough
			}
			taken++
			if err != nil {
				return err
			}
			if len(text) != taken || !slices.Equal(ids, []int32{int32(taken)}) {
				return fmt.Errorf("text %d has %d bytes and the ids %v", taken, len(text), ids)
			}
			return nil
		})
		if stop < 200 && !errors.Is(err, errEnough) || stop == 200 && err != nil || taken != min(stop, 200) {
			t.Errorf("stop at %d: %d taken, %v", stop, taken, err)
		}
	}
}
