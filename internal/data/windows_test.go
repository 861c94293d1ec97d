package data

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var (
	anyLen     = rapid.Int64Range(0, 1<<40)
	shortLen   = rapid.Int64Range(0, 5000)
	anyContext = rapid.IntRange(1, 300)
)

// blank is a corpus of a length, without ids.
type blank int64

func (b blank) Len() int64                { return int64(b) }
func (b blank) Read([]int32, int64) error { return nil }
func (b blank) Close() error              { return nil }

func TestValWindows(t *testing.T) {
	for _, tc := range []struct {
		len           int64
		context, want int
		offs          []int64
	}{
		{101, 10, 4, []int64{0, 25, 50, 75}},
		{101, 10, 10, []int64{0, 10, 20, 30, 40, 50, 60, 70, 80, 90}},
		{101, 10, 99, []int64{0, 10, 20, 30, 40, 50, 60, 70, 80, 90}},
		{100, 10, 99, []int64{0, 11, 22, 33, 44, 55, 66, 77, 88}},
		{11, 10, 5, []int64{0}},
		{101, 10, 0, []int64{0}},
		{10, 10, 5, nil},
	} {
		offs, err := ValWindows(blank(tc.len), tc.context, tc.want)
		if !slices.Equal(offs, tc.offs) || (err != nil) != (tc.offs == nil) {
			t.Errorf("ValWindows(%d, %d, %d) = %v, %v, want %v", tc.len, tc.context, tc.want, offs, err, tc.offs)
		}
	}
}

func TestValWindowsAreApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length, context := rapid.OneOf(shortLen, anyLen).Draw(t, "length"), anyContext.Draw(t, "context")
		want := rapid.IntRange(1, 1000).Draw(t, "want")
		offs, err := ValWindows(blank(length), context, want)
		if err != nil {
			if length > int64(context) || !errors.Is(err, ErrTooShort) {
				t.Fatal(err)
			}
			return
		}
		if fit := (length - 1) / int64(context); int64(len(offs)) != min(fit, int64(want)) {
			t.Fatalf("%d windows, %d fit", len(offs), fit)
		}
		end := int64(0) // of the windows so far: where the next may begin
		for _, off := range offs {
			if off < end || off+int64(context) >= length {
				t.Fatalf("window at %d, but the one before ends at %d, and there are %d tokens", off, end, length)
			}
			end = off + int64(context)
		}
	})
}

func TestSequentialCoversEveryTargetOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length, context := shortLen.Draw(t, "length"), anyContext.Draw(t, "context")
		next := int64(1) // the first token is no target
		windows := Sequential(blank(length), context)
		for i, w := range windows {
			if w.Off+1 != next || w.Len < 1 || w.Len > context || w.Len < context && i < len(windows)-1 {
				t.Fatalf("window %d of %d is %+v, the next target %d", i, len(windows), w, next)
			}
			next += int64(w.Len)
		}
		if next != max(length, 1) {
			t.Fatalf("%d of %d targets", next-1, length-1)
		}
	})
}

func TestCheckLength(t *testing.T) {
	for _, tc := range []struct {
		len     int64
		context int
		is      error
		says    []string
	}{
		{65, 64, nil, nil},
		{64, 64, ErrTooShort, []string{"64 tokens", "needs 65", "at most 63"}},
		{0, 1, ErrTooShort, []string{"0 tokens", "needs 2"}},
		{9, math.MaxInt, ErrTooShort, nil},
	} {
		err := CheckLength(tc.len, tc.context)
		if !errors.Is(err, tc.is) {
			t.Errorf("CheckLength(%d, %d) = %v, want %v", tc.len, tc.context, err, tc.is)
		}
		for _, s := range tc.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%q does not say %q", err, s)
			}
		}
	}
	if err := CheckLength(10, 0); err == nil || errors.Is(err, ErrTooShort) {
		t.Errorf("a context of 0: %v", err)
	}
}

func TestFill(t *testing.T) {
	c := inMemory[uint8]{10, 11, 12, 13, 14}
	for _, tc := range []struct {
		off             int64
		tokens, targets []int32
	}{
		{0, []int32{10, 11, 12}, []int32{11, 12, 13}},
		{1, []int32{11, 12, 13}, []int32{12, 13, 14}},
		{2, []int32{12, 13, 14}, []int32{13, 14, Masked}},
		{3, []int32{13, 14, 0}, []int32{14, Masked, Masked}},
		{4, []int32{14, 0}, []int32{Masked, Masked}},
		{5, []int32{0}, []int32{Masked}},
		{2, []int32{}, []int32{}},
	} {
		tokens, targets := slices.Repeat([]int32{99}, len(tc.tokens)), slices.Repeat([]int32{99}, len(tc.tokens))
		err := Fill(c, tc.off, tokens, targets)
		if err != nil || !slices.Equal(tokens, tc.tokens) || !slices.Equal(targets, tc.targets) {
			t.Errorf("at %d: %v and %v, %v, want %v and %v", tc.off, tokens, targets, err, tc.tokens, tc.targets)
		}
	}
	for _, tc := range []struct {
		off int64
		n   int
	}{{-1, 1}, {6, 1}, {0, 2}} {
		if err := Fill(c, tc.off, make([]int32, 1), make([]int32, tc.n)); err == nil {
			t.Errorf("1 token and %d targets at %d: no error", tc.n, tc.off)
		}
	}
}

func TestFillAllocatesNothing(t *testing.T) {
	c := Corpus(make(inMemory[uint16], 1000))
	tokens, targets := make([]int32, 64), make([]int32, 64)
	if n := testing.AllocsPerRun(100, func() {
		if err := Fill(c, 7, tokens, targets); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%g allocations", n)
	}
}

// Of a corpus in pieces no validation window spans an end where any fits in between, and
// every token but the first of each piece is evaluated once.
func TestWindowsOfPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.OneOf(rapid.Int64Range(100, 5000), rapid.Int64Range(100, 1<<40)).Draw(t, "length")
		_, val, err := Split(blank(length), Blocks, rapid.Float64Range(0.01, 0.99).Draw(t, "fraction"))
		if err != nil {
			t.Skip("too short")
		}
		pieces := Pieces(val)
		inside := func(off, n int64) bool {
			return slices.ContainsFunc(pieces, func(p Piece) bool { return off >= p.Off && off+n < p.Off+p.Len })
		}
		context, want := rapid.IntRange(1, 2000).Draw(t, "context"), rapid.IntRange(1, 2000).Draw(t, "want")
		offs, err := ValWindows(val, context, want)
		if err != nil {
			if CheckLength(val.Len(), context) == nil {
				t.Fatal(err)
			}
			return
		}
		fits := windowsIn(pieces, context)
		for i, off := range offs {
			if off < 0 || off+int64(context) >= val.Len() || i > 0 && off < offs[i-1]+int64(context) {
				t.Fatalf("window %d of %d at %d", i, len(offs), off)
			}
			if fits > 0 && !inside(off, int64(context)) {
				t.Fatalf("the window at %d spans the end of a piece: %v", off, pieces)
			}
		}
		if fits > 0 && int64(len(offs)) != min(fits, int64(want)) {
			t.Fatalf("%d windows of %d that fit, wanted %d", len(offs), fits, want)
		}
		if length > 1<<20 {
			return // too many to look at each
		}
		var targets int64
		for _, w := range Sequential(val, context) {
			if !inside(w.Off, int64(w.Len)) {
				t.Fatalf("the window %+v spans the end of a piece: %v", w, pieces)
			}
			targets += int64(w.Len)
		}
		if targets != val.Len()-int64(len(pieces)) {
			t.Fatalf("%d targets in %d pieces of %d tokens", targets, len(pieces), val.Len())
		}
	})
}
