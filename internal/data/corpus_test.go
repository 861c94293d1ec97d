package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// runes is an Encoder whose ids are code points minus base.
type runes struct {
	vocab, base int
}

func (e runes) Vocab() int { return e.vocab }

func (e runes) Cut(text []byte, most int) int {
	for !utf8.RuneStart(text[most]) {
		most--
	}
	return most
}

func (e runes) AppendEncode(dst []int32, text []byte) ([]int32, error) {
	dst = slices.Grow(dst, len(text))
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError {
			return nil, badText(at)
		}
		dst = append(dst, r-int32(e.base))
		at += size
	}
	return dst, nil
}

// badText is an error with a place, as an encoder's are.
type badText int

var errBadText = errors.New("bad text")

func (e badText) Error() string   { return fmt.Sprintf("byte %d: %v", int(e), errBadText) }
func (e badText) ByteOffset() int { return int(e) }
func (e badText) Unwrap() error   { return errBadText }

func write(t testing.TB, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func closed(t testing.TB, c Corpus) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func all(t testing.TB, c Corpus) []int32 {
	t.Helper()
	ids := make([]int32, c.Len())
	if err := c.Read(ids, 0); err != nil {
		t.Fatal(err)
	}
	return ids
}

func openText(files []string, enc Encoder) (Corpus, error) {
	text, err := ReadBytes(files)
	if err != nil {
		return nil, err
	}
	return text.Encode(enc)
}

func TestTextOfSeveralFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, content := range map[string]string{"1": "", "2": "ab", "3": "", "4": "cé", "5": ""} {
		write(t, name, []byte(content))
	}
	text, err := ReadText([]string{"1", "2", "3", "4", "5"})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(text.Bytes()); got != "abcé" {
		t.Errorf("the text is %q", got)
	}
	for offset, want := range []string{"2:0", "2:1", "4:0", "4:1", "4:2"} {
		file, at := text.Position(offset)
		if got := fmt.Sprintf("%s:%d", file, at); got != want {
			t.Errorf("byte %d of the text is %s, want %s", offset, got, want)
		}
	}
	err = text.Locate(fmt.Errorf("wrapped: %w", badText(3)))
	if !errors.Is(err, errBadText) || err.Error() != "4, byte 1: bad text" {
		t.Errorf("located: %v", err)
	}
	if err := text.Locate(errBadText); !errors.Is(err, errBadText) {
		t.Errorf("an error without a place became %v", err)
	}
	c, err := text.Encode(runes{vocab: 256})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := all(t, c), []int32{'a', 'b', 'c', 'é'}; !slices.Equal(got, want) {
		t.Errorf("ids %v, want %v", got, want)
	}
}

// The piece that a text is encoded in may end inside a character.
func TestEncodeCutsBetweenCharacters(t *testing.T) {
	t.Chdir(t.TempDir())
	for lead := range len("🙂é€") {
		want := []rune(strings.Repeat("x", lead) + strings.Repeat("🙂é€", 30_000))
		write(t, "text", []byte(string(want)))
		c, err := openText([]string{"text"}, runes{vocab: utf8.MaxRune + 1})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(all(t, c), want) {
			t.Errorf("other ids with %d bytes before", lead)
		}
	}
}

func TestEncodeWidths(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, vocab := range []int{1, 255, 256, 257, 65536, 65537, 1 << 20} {
		base := max(0x10000-vocab, 0)                          // above the surrogates, which are no characters
		want := []int32{int32(vocab - 1), 0, int32(vocab / 2)} // U+FEFF at the beginning would be a mark
		var text []byte
		for _, id := range want {
			text = utf8.AppendRune(text, rune(int(id)+base))
		}
		write(t, "text", text)
		c, err := openText([]string{"text"}, runes{vocab, base})
		if err != nil {
			t.Fatalf("vocabulary %d: %v", vocab, err)
		}
		if got := all(t, c); !slices.Equal(got, want) {
			t.Errorf("vocabulary %d: ids %v, want %v", vocab, got, want)
		}
	}
}

func TestTextErrors(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "empty", nil)
	write(t, "good", bytes.Repeat([]byte("é"), 300_000))
	write(t, "bad", append(bytes.Repeat([]byte("é"), 300_000), 'x', 0xFF))
	open := func(enc Encoder, files ...string) error {
		_, err := openText(files, enc)
		return err
	}
	for _, tc := range []struct {
		name string
		err  error
		is   error
		says string
	}{
		{"no files", open(runes{vocab: 256}), ErrEmpty, "0 text files"},
		{"empty files", open(runes{vocab: 256}, "empty", "empty"), ErrEmpty, "2 text files have 0 bytes in total, the first empty"},
		{"empty file", open(runes{vocab: 256}, "empty"), ErrEmpty, "no data: empty has 0 bytes of text"},
		{"missing", open(runes{vocab: 256}, "good", "missing"), os.ErrNotExist, "missing"},
		{"folder", open(runes{vocab: 256}, dir), nil, "not a regular file"},
		{"place", open(runes{vocab: 256}, "good", "empty", "bad"), errBadText, "bad, byte 600001: bad text"},
		{"id too large", open(runes{vocab: 'é'}, "good"), ErrVocab, "good returned the id 233, but the vocabulary has 233 ids"},
		{"id negative", open(runes{vocab: 256, base: 234}, "good"), ErrVocab, "-1"},
	} {
		if tc.err == nil || tc.is != nil && !errors.Is(tc.err, tc.is) || !strings.Contains(tc.err.Error(), tc.says) {
			t.Errorf("%s: %v does not say %q or is not %v", tc.name, tc.err, tc.says, tc.is)
		}
	}
}

func TestTextLargerThanMemory(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "small", []byte("abc"))
	write(t, "huge", nil)
	const size = 8 << 40
	if runtime.GOOS != "linux" || os.Truncate("huge", size) != nil {
		t.Skip("the memory is unknown here, or such a file impossible")
	}
	_, err := ReadText([]string{"small", "huge"})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%d bytes of huge", int64(size))) {
		t.Errorf("error %v", err)
	}
}

func TestReadFileThatBecameShorter(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "text", []byte("abc"))
	n, err := readFile("text", 0, make([]byte, 4))
	if n != 3 || err == nil || !strings.Contains(err.Error(), "text became shorter") {
		t.Errorf("read %d: %v", n, err)
	}
}

// A text and its ids are all that is allocated, so twice its size for a small
// vocabulary and three times for a large one.
func TestEncodeMemory(t *testing.T) {
	t.Chdir(t.TempDir())
	const size = 8 << 20
	write(t, "text", bytes.Repeat([]byte("0123456789abcdef"), size/16))
	for _, tc := range []struct{ vocab, most int }{{256, 2 * size}, {60_000, 3 * size}} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c, err := openText([]string{"text"}, runes{vocab: tc.vocab})
		if err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		piece := (2*runtime.GOMAXPROCS(0)+1)*8*pieceBytes + 1<<20 // the ids under way, twice with the race detector, and what else is small
		if got := int(after.TotalAlloc - before.TotalAlloc); got > tc.most+piece {
			t.Errorf("vocabulary %d: %d bytes allocated for %d, want at most %d", tc.vocab, got, size, tc.most+piece)
		}
		if c.Len() != size {
			t.Errorf("%d ids", c.Len())
		}
	}
}

func uint16File(t testing.TB, name string, ids ...uint16) {
	t.Helper()
	var content []byte
	for _, id := range ids {
		content = binary.LittleEndian.AppendUint16(content, id)
	}
	write(t, name, content)
}

func TestUint16(t *testing.T) {
	t.Chdir(t.TempDir())
	uint16File(t, "1", 1, 2, 0xFFFF)
	uint16File(t, "2")
	uint16File(t, "3", 4)
	uint16File(t, "4", 5, 6, 7, 8)
	want := []int32{1, 2, 0xFFFF, 4, 5, 6, 7, 8}
	c, err := OpenUint16([]string{"1", "2", "3", "4"}, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	if got := all(t, c); !slices.Equal(got, want) {
		t.Errorf("ids %v, want %v", got, want)
	}
	var wg sync.WaitGroup
	for from := range want {
		wg.Go(func() {
			for to := from; to <= len(want); to++ {
				got := make([]int32, to-from)
				if err := c.Read(got, int64(from)); err != nil || !slices.Equal(got, want[from:to]) {
					t.Errorf("ids %d to %d: %v, %v, want %v", from, to, got, err, want[from:to])
				}
			}
		})
	}
	wg.Wait()
	closed(t, c)
	if err := c.Read(make([]int32, 1), 0); err == nil {
		t.Error("a closed corpus was read")
	}
	closed(t, c) // again
}

func TestUint16Errors(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "odd", make([]byte, 7))
	write(t, "empty", nil)
	uint16File(t, "good", 1, 2, 3)
	open := func(files ...string) error {
		_, err := OpenUint16(files, 100)
		return err
	}
	for _, tc := range []struct {
		name string
		err  error
		is   error
		says string
	}{
		{"odd", open("good", "odd"), nil, "odd has 7 bytes"},
		{"empty", open("empty"), ErrEmpty, "1 uint16 files"},
		{"no files", open(), ErrEmpty, "0 uint16 files"},
		{"missing", open("good", "missing"), os.ErrNotExist, "missing"},
		{"folder", open(dir), nil, "not a regular file"},
	} {
		if tc.err == nil || tc.is != nil && !errors.Is(tc.err, tc.is) || !strings.Contains(tc.err.Error(), tc.says) {
			t.Errorf("%s: %v does not say %q or is not %v", tc.name, tc.err, tc.says, tc.is)
		}
	}

	c, err := OpenUint16([]string{"good", "good"}, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, c)
	if err := c.Read(make([]int32, 2), 3); err != nil {
		t.Errorf("ids below the vocabulary: %v", err)
	}
	err = c.Read(make([]int32, 3), 3)
	if want := "good has the id 3 at byte 4, but the vocabulary has 3 ids"; !errors.Is(err, ErrVocab) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v does not say %q", err, want)
	}
}

func TestReadOutOfRange(t *testing.T) {
	t.Chdir(t.TempDir())
	uint16File(t, "ids", 'a', 'b', 'c', 'd')
	mapped, err := OpenUint16([]string{"ids"}, 256)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mapped)
	write(t, "text", []byte("abcd"))
	text, err := openText([]string{"text"}, runes{vocab: 256})
	if err != nil {
		t.Fatal(err)
	}
	head, tail, err := Split(text, Tail, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Corpus{"mapped": mapped, "text": text, "head": head, "tail": tail} {
		for _, tc := range []struct {
			n   int
			off int64
		}{{1, -1}, {1, c.Len()}, {int(c.Len()) + 1, 0}, {2, c.Len() - 1}, {0, c.Len() + 1}, {1, 1<<63 - 1}} {
			if err := c.Read(make([]int32, tc.n), tc.off); err == nil {
				t.Errorf("%s: %d ids from %d on were read", name, tc.n, tc.off)
			}
		}
		if err := c.Read(nil, c.Len()); err != nil {
			t.Errorf("%s: no ids at the end: %v", name, err)
		}
	}
}
