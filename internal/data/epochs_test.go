package data

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestEpochVisitsEveryWindowOnce: the windows of an epoch tile the corpus, in some order,
// and what they leave out is less than two windows.
func TestEpochVisitsEveryWindowOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length, context := shortLen.Draw(t, "length"), anyContext.Draw(t, "context")
		e, err := NewEpochs(rapid.Uint64().Draw(t, "seed"), length, context)
		if err != nil {
			if CheckLength(length, context) == nil {
				t.Fatal(err)
			}
			return
		}
		number := rapid.OneOf(rapid.Int64Range(0, 10), rapid.Int64Range(0, 1<<40)).Draw(t, "epoch")
		var offs []int64
		for i := range e.Windows() {
			epoch, off := e.Window(number*e.Windows() + i)
			if epoch != number {
				t.Fatalf("sequence %d of epoch %d is in epoch %d", i, number, epoch)
			}
			offs = append(offs, off)
		}
		slices.Sort(offs)
		for i, off := range offs {
			if off != offs[0]+int64(i*context) {
				t.Fatalf("the windows begin at %v", offs)
			}
		}
		first, end := offs[0], offs[len(offs)-1]+int64(context)
		if first < 0 || end >= length {
			t.Fatalf("windows from %d to %d of %d tokens", first, end, length)
		}
		if out := first + length - 1 - end; out >= 2*int64(context)-1 {
			t.Fatalf("%d of %d tokens are left out", out, length)
		}
	})
}

// TestEpochsReachAllOfAText: what one epoch leaves out is in others, also of a text that
// has hardly more than a window.
func TestEpochsReachAllOfAText(t *testing.T) {
	const context = 8
	for length := int64(context + 1); length < 6*context; length++ {
		e, err := NewEpochs(1, length, context)
		if err != nil {
			t.Fatal(err)
		}
		targets := make(map[int64]int)
		for sequence := range 100 * context * e.Windows() {
			_, off := e.Window(sequence)
			for i := range int64(context) {
				targets[off+1+i]++
			}
		}
		for at := int64(1); at < length; at++ {
			if targets[at] == 0 {
				t.Errorf("of %d tokens number %d is the target of no window", length, at)
			}
		}
	}
}

// TestEpochsDiffer: in order, and in where the first window begins; every start and every
// order comes about as often as any other.
func TestEpochsDiffer(t *testing.T) {
	const context, draws = 6, 6000
	e, err := NewEpochs(1, 4*context+context, context) // 4 windows
	if err != nil {
		t.Fatal(err)
	}
	starts, orders := make(map[int64]int), make(map[string]int)
	for epoch := range int64(draws) {
		var offs []int64
		for i := range e.Windows() {
			_, off := e.Window(epoch*e.Windows() + i)
			offs = append(offs, off)
		}
		first := slices.Min(offs)
		starts[first]++
		for i := range offs {
			offs[i] = (offs[i] - first) / context
		}
		orders[fmt.Sprint(offs)]++
	}
	if e.Windows() != 4 || len(starts) != context || len(orders) != 24 {
		t.Fatalf("%d windows, %d starts, %d orders", e.Windows(), len(starts), len(orders))
	}
	even := func(what string, n, of int) {
		mean := float64(draws) / float64(of)
		if math.Abs(float64(n)-mean) > 5*math.Sqrt(mean) {
			t.Errorf("%s comes %d times of %d, not about %.0f", what, n, draws, mean)
		}
	}
	for start, n := range starts {
		even(fmt.Sprintf("the start %d", start), n, context)
	}
	for order, n := range orders {
		even("the order "+order, n, 24)
	}
}

// A run must go on with the same windows under a later version too.
func TestEpochsAreFixed(t *testing.T) {
	e, err := NewEpochs(42, 1_000_000, 64)
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	for _, sequence := range []int64{0, 1, 2, e.Windows() - 1, e.Windows(), 1_000_000} {
		_, off := e.Window(sequence)
		got = append(got, off)
	}
	if want := []int64{147572, 574132, 91700, 44276, 1886, 846650}; e.Windows() != 15_624 || !slices.Equal(got, want) {
		t.Errorf("%d windows, at %v, want %v", e.Windows(), got, want)
	}
}

// A permutation of many windows maps each to one, without holding them.
func TestPermute(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 16, 255, 256, 257, 65_537} {
		e := Epochs{seed: 3, context: 1, windows: n, starts: 1}
		seen := make([]bool, n)
		for i := range int64(n) {
			_, off := e.Window(i)
			if off < 0 || uint64(off) >= n || seen[off] {
				t.Fatalf("of %d windows number %d is %d, out of range or twice", n, i, off)
			}
			seen[off] = true
		}
	}
	huge := Epochs{seed: 3, context: 1, windows: 1 << 40, starts: 1}
	if _, off := huge.Window(1 << 39); off < 0 || off >= 1<<40 {
		t.Errorf("window %d", off)
	}
}
