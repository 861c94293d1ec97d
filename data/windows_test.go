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

func TestTrainWindowIsInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		context := anyContext.Draw(t, "context")
		length := rapid.OneOf(shortLen, anyLen).Draw(t, "length")
		if CheckLength(length, context) != nil {
			return
		}
		seed, step, index := rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 1<<30).Draw(t, "step"), rapid.IntRange(0, 1<<20).Draw(t, "index")
		off := TrainWindow(seed, step, index, length, context)
		if off < 0 || off+int64(context) >= length {
			t.Fatalf("window at %d of %d tokens", off, length)
		}
		if again := TrainWindow(seed, step, index, length, context); again != off {
			t.Fatalf("%d, then %d", off, again)
		}
	})
}

func TestTrainWindowReachesEveryStart(t *testing.T) {
	const length, context, draws = 20, 12, 4000
	var count [length - context]int
	for step := range draws / 8 {
		for index := range 8 {
			count[TrainWindow(1, step, index, length, context)]++
		}
	}
	for off, n := range count {
		if mean := draws / len(count); n < mean*8/10 || n > mean*12/10 {
			t.Errorf("window %d is drawn %d times of %d", off, n, draws)
		}
	}
}

// A run must resume with the same windows under a later version too.
func TestTrainWindowIsFixed(t *testing.T) {
	var got []int64
	for step := range 2 {
		for index := range 3 {
			got = append(got, TrainWindow(42, step, index, 1_000_000, 64))
		}
	}
	if want := []int64{614068, 338201, 76981, 672914, 588091, 778754}; !slices.Equal(got, want) {
		t.Errorf("windows %v, want %v", got, want)
	}
}

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
		offs, err := ValWindows(tc.len, tc.context, tc.want)
		if !slices.Equal(offs, tc.offs) || (err != nil) != (tc.offs == nil) {
			t.Errorf("ValWindows(%d, %d, %d) = %v, %v, want %v", tc.len, tc.context, tc.want, offs, err, tc.offs)
		}
	}
}

func TestValWindowsAreApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length, context := rapid.OneOf(shortLen, anyLen).Draw(t, "length"), anyContext.Draw(t, "context")
		want := rapid.IntRange(1, 1000).Draw(t, "want")
		offs, err := ValWindows(length, context, want)
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
		windows := Sequential(length, context)
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
		{64, 64, ErrTooShort, []string{"64 tokens", "takes 65", "at most 63"}},
		{0, 1, ErrTooShort, []string{"0 tokens", "takes 2"}},
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
		s := Sample{slices.Repeat([]int32{99}, len(tc.tokens)), slices.Repeat([]int32{99}, len(tc.tokens))}
		err := Fill(c, tc.off, s.Tokens, s.Targets)
		if err != nil || !slices.Equal(s.Tokens, tc.tokens) || !slices.Equal(s.Targets, tc.targets) {
			t.Errorf("at %d: %v, %v, want %v and %v", tc.off, s, err, tc.tokens, tc.targets)
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
