package samples

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/data"
)

// river is a stream of the samples of counting, of which it has n.
type river struct {
	at, n int64
	bad   int64 // the number of a sample that can't be read; 0: none
	open  *int  // how many are
}

var errRiver = errors.New("the line is cut")

func (r *river) Fields() []Field { return counting(0).fields }
func (r *river) Close() error    { *r.open--; return nil }

func (r *river) Next() (Sample, error) {
	switch {
	case r.at == r.n:
		return nil, io.EOF
	case r.bad > 0 && r.at == r.bad:
		return nil, errRiver
	}
	r.at++
	return Sample{floats([]int{1}, float32(r.at-1))}, nil
}

// source is a StreamSource of a river, and how often it was opened, and is.
func source(t rapid.TB, n, bad int64, seekable bool) (s *StreamSource, times, open *int) {
	times, open = new(int), new(int)
	s, err := NewStreamSource(func(position int64) (Stream, error) {
		*times++
		*open++
		return &river{position, n, bad, open}, nil
	}, seekable)
	if err != nil {
		t.Fatal(err)
	}
	return s, times, open
}

func (s *StreamSource) mustBe(t rapid.TB, number int64) {
	t.Helper()
	sample, err := s.Sample(number)
	if err != nil {
		t.Fatal(err)
	}
	if got := sample[0].Float[0]; got != float32(number) {
		t.Fatalf("sample %d is %g", number, got)
	}
}

// TestStreamSource: whatever is asked for, a stream that can be opened anywhere gives it.
func TestStreamSource(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, _, open := source(t, 1<<20, 0, true)
		at := int64(0)
		for range rapid.IntRange(1, 50).Draw(t, "asked") {
			switch rapid.IntRange(0, 9).Draw(t, "how") {
			case 0:
				at = rapid.Int64Range(0, 1<<20-1).Draw(t, "at")
			case 1:
				at = max(at-rapid.Int64Range(0, 10).Draw(t, "back"), 0)
			case 2:
				at = min(at+rapid.Int64Range(0, 10).Draw(t, "ahead"), 1<<20-1)
			case 3:
				if err := s.Start(at); err != nil {
					t.Fatal(err)
				}
			default:
				at = min(at+1, 1<<20-1)
			}
			s.mustBe(t, at)
		}
		if *open != 1 {
			t.Fatalf("%d streams are open", *open)
		}
		if err := s.Close(); err != nil || *open != 0 {
			t.Fatalf("%v, %d streams are open after Close", err, *open)
		}
	})
}

func TestStreamInOrder(t *testing.T) {
	s, times, _ := source(t, 3*limitStreamAhead, 0, false)
	if err := s.Start(0); err != nil {
		t.Fatal(err)
	}
	for i := range int64(2 * limitStreamAhead) {
		s.mustBe(t, i)
	}
	for _, number := range []int64{limitStreamAhead, 2*limitStreamAhead + 5, 2 * limitStreamAhead} { // once more, and out of order
		s.mustBe(t, number)
	}
	if *times != 1 || len(s.kept) != limitStreamAhead {
		t.Errorf("opened %d times, %d samples kept", *times, len(s.kept))
	}
	_, err := s.Sample(5)
	if want := "sample 5 of the stream: position out of range: the stream is at sample 8198 and cannot be opened at sample 5, so this run cannot resume from a checkpoint: use a stream that can be opened at a position, or start a new run"; place(err, "-/-") != want || !errors.Is(err, ErrPosition) {
		t.Errorf("got %v", err)
	}
	s.mustBe(t, 2*limitStreamAhead+6) // it goes on
	if _, err := s.Sample(-1); !errors.Is(err, ErrPosition) {
		t.Errorf("sample -1: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Sample(3 * limitStreamAhead); err == nil {
		t.Error("a sample after Close")
	}
}

// A run can't go on with a stream that has only its beginning.
func TestStreamGoesOn(t *testing.T) {
	s, _, _ := source(t, 100, 0, false)
	want := "position out of range: the stream is at sample 0 and cannot be opened at sample 7, so this run cannot resume from a checkpoint: use a stream that can be opened at a position, or start a new run"
	if err := s.Start(7); place(err, "-/-") != want || !errors.Is(err, ErrPosition) || s.Seekable() {
		t.Errorf("got %v", err)
	}
	if _, err := s.Sample(7); !errors.Is(err, ErrPosition) {
		t.Errorf("got %v", err)
	}
	s.mustBe(t, 0)
	s, times, _ := source(t, 100, 0, true)
	if err := s.Start(7); err != nil || !s.Seekable() {
		t.Error(err)
	}
	s.mustBe(t, 7)
	if *times != 2 {
		t.Errorf("opened %d times", *times)
	}
}

func TestStreamErrors(t *testing.T) {
	for _, seekable := range []bool{false, true} {
		s, times, open := source(t, 10, 5, seekable)
		s.mustBe(t, 0)
		s.mustBe(t, 4)
		for _, number := range []int64{7, 5, 5} {
			want := fmt.Sprintf("sample %d of the stream: reading sample 5: the line is cut", number)
			if _, err := s.Sample(number); !errors.Is(err, errRiver) || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		}
		if want := map[bool]int{false: 1, true: 3}[seekable]; *open != 0 || *times != want {
			t.Errorf("opened %d times, not %d, and %d are open", *times, want, *open)
		}
		s.mustBe(t, 4) // which was read before
	}
	s, _, _ := source(t, 3, 0, false)
	s.mustBe(t, 0)
	s.mustBe(t, 2)
	if _, err := s.Sample(3); !errors.Is(err, ErrEnded) ||
		err.Error() != "sample 3 of the stream: reading sample 3: the data has ended after 3 samples: train for fewer steps, or provide more data" {
		t.Errorf("got %v", err)
	}
	s.mustBe(t, 1)

	refused := errors.New("refused")
	for name, open := range map[string]OpenStream{
		"opening the stream at sample 0: refused":                                 func(int64) (Stream, error) { return nil, refused },
		"opening the stream at sample 0: the function that opens it returned nil": func(int64) (Stream, error) { return nil, nil },
		"wrong data options: a sample has 0 fields: it must have from 1 to 64":    func(int64) (Stream, error) { return nothing{}, nil },
	} {
		if _, err := NewStreamSource(open, true); place(err, "-/-") != name {
			t.Errorf("got %v, want %s", err, name)
		}
	}
	wrong, err := NewStreamSource(func(int64) (Stream, error) { return oneField{}, nil }, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wrong.Sample(0); !errors.Is(err, ErrShape) || !strings.HasPrefix(err.Error(), "sample 0 of the stream: reading sample 0: ") {
		t.Errorf("a sample of another shape: %v", err)
	}
}

type nothing struct{}

func (nothing) Fields() []Field       { return nil }
func (nothing) Close() error          { return nil }
func (nothing) Next() (Sample, error) { return nil, io.EOF }

// oneField gives samples that are not what it says.
type oneField struct{ nothing }

func (oneField) Fields() []Field         { return counting(0).fields }
func (oneField) Next() (Sample, error)   { return Sample{}, nil }
func (oneField) Identity() data.Identity { return data.Identity{SHA256: "stream"} }

func TestStreamIdentity(t *testing.T) {
	s, _, _ := source(t, 3, 0, false)
	if id, ok := s.Identity(); ok {
		t.Errorf("a stream that knows none has %v", id)
	}
	s, err := NewStreamSource(func(int64) (Stream, error) { return oneField{}, nil }, true)
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := s.Identity(); !ok || id.SHA256 != "stream" {
		t.Errorf("got %v", id)
	}
}
