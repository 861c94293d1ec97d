package data

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// counted is a corpus of the ids 0, 1, 2, …
func counted(n int) inMemory[int32] {
	c := make(inMemory[int32], n)
	for i := range c {
		c[i] = int32(i)
	}
	return c
}

// TestSplit: every id is in one part, in its order, and the validation part is as large
// as was asked for.
func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := counted(rapid.OneOf(rapid.IntRange(0, 50), rapid.IntRange(0, 100_000)).Draw(t, "len"))
		fraction := rapid.Float64Range(-0.1, 1.1).Draw(t, "fraction")
		how := rapid.SampledFrom([]string{Blocks, Tail}).Draw(t, "how")
		train, val, err := Split(c, how, fraction)
		if err != nil {
			return
		}
		if n := train.Len(); n < 1 || val.Len() < 1 || n+val.Len() != c.Len() {
			t.Fatalf("%d and %d of %d", n, val.Len(), c.Len())
		}
		if d := float64(val.Len()) - fraction*float64(len(c)); d < -1 || d > 1 {
			t.Fatalf("%d of %d for the fraction %g", val.Len(), len(c), fraction)
		}
		a, b := make([]int32, train.Len()), make([]int32, val.Len())
		if train.Read(a, 0) != nil || val.Read(b, 0) != nil || !slices.IsSorted(a) || !slices.IsSorted(b) {
			t.Fatalf("the parts are not in order: %v, %v", a, b)
		}
		both := append(slices.Clone(a), b...)
		slices.Sort(both)
		if !slices.Equal(both, c) {
			t.Fatalf("the parts are not the whole: %v", both)
		}
		// Any stretch of a part reads as the part does.
		from := rapid.IntRange(0, len(a)).Draw(t, "from")
		to := rapid.IntRange(from, len(a)).Draw(t, "to")
		got := make([]int32, to-from)
		if err := train.Read(got, int64(from)); err != nil || !slices.Equal(got, a[from:to]) {
			t.Fatalf("from %d to %d: %v, %v", from, to, got, err)
		}
		if train.Read(make([]int32, 1), train.Len()) == nil {
			t.Fatal("an id behind the end was read")
		}
		if how == Tail && (len(Pieces(val)) != 1 || int(b[0]) != len(a)) {
			t.Fatalf("the tail is %v", Pieces(val))
		}
	})
}

// TestNoTrainingWindowSharesAToken: of any split, what a window of any epoch reads, its
// target included, is none of the validation text.
func TestNoTrainingWindowSharesAToken(t *testing.T) {
	c := counted(60_000)
	for _, how := range []string{Blocks, Tail} {
		train, val, err := Split(c, how, 0.3)
		if err != nil {
			t.Fatal(err)
		}
		held := make([]int32, val.Len())
		if err := val.Read(held, 0); err != nil {
			t.Fatal(err)
		}
		const context = 96
		epochs, err := NewEpochs(1, train.Len(), context)
		if err != nil {
			t.Fatal(err)
		}
		for sequence := range 3 * epochs.Windows() {
			_, off := epochs.Window(sequence)
			tokens, targets := make([]int32, context), make([]int32, context)
			if err := Fill(train, off, tokens, targets); err != nil {
				t.Fatal(err)
			}
			for _, id := range append(tokens, targets[context-1]) {
				if _, shared := slices.BinarySearch(held, id); shared {
					t.Fatalf("%s: sequence %d trains on token %d of the validation text", how, sequence, id)
				}
			}
		}
	}
}

// TestBlocks: they lie all over the corpus, depend on its length and the fraction alone,
// and are fewer in a short text.
func TestBlocks(t *testing.T) {
	for _, tt := range []struct {
		len      int64
		fraction float64
		count    int
	}{
		{100_000_000, 0.1, 64}, {1_000_000, 0.1, 24}, {100_000, 0.1, 2}, {20_000, 0.1, 1}, {100, 0.5, 1}, {1 << 40, 0.001, 64},
	} {
		t.Run(fmt.Sprintf("%g of %d", tt.fraction, tt.len), func(t *testing.T) {
			train, val, err := Split(blank(tt.len), Blocks, tt.fraction)
			if err != nil {
				t.Fatal(err)
			}
			taken := val.(*part).pieces
			if len(taken) != tt.count {
				t.Errorf("%d blocks, want %d", len(taken), tt.count)
			}
			for i, p := range taken {
				// One in each of as many equal stretches.
				if stretch := tt.len / int64(tt.count); p.Off < int64(i)*stretch-1 || p.Off+p.Len > int64(i+1)*stretch+int64(tt.count) {
					t.Errorf("block %d is %+v", i, p)
				}
			}
			again, _, err := Split(blank(tt.len), Blocks, tt.fraction)
			if err != nil || !slices.Equal(again.(*part).pieces, train.(*part).pieces) {
				t.Errorf("another split the second time: %v", err)
			}
		})
	}
	// What a run was trained with must be split the same way under a later version.
	_, val, err := Split(blank(1_000_000), Blocks, 0.02)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(val.(*part).pieces), "[{236350 5000} {256564 5000} {719740 5000} {963041 5000}]"; got != want {
		t.Errorf("blocks %s, want %s", got, want)
	}
}

func TestSplitErrors(t *testing.T) {
	for _, tt := range []struct {
		len      int
		how      string
		fraction float64
		says     string
	}{
		{10, Tail, 0.99, "10 tokens leaves 0 for training"}, {1, Tail, 0.5, "1 tokens leaves 0"}, {0, Blocks, 0.5, "0 tokens"},
		{10, Blocks, 0, "fraction is 0:"}, {10, Tail, 1, "fraction is 1:"}, {10, Tail, -0.5, "fraction is -0.5:"},
		{10, "middle", 0.5, `"middle"`},
	} {
		if _, _, err := Split(make(inMemory[uint8], tt.len), tt.how, tt.fraction); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s %g of %d: %v", tt.how, tt.fraction, tt.len, err)
		}
	}
	train, _, err := Split(make(inMemory[uint8], 1_115_394), Tail, 0.1) // as others split this text
	if err != nil || train.Len() != 1_003_854 {
		t.Errorf("%d tokens to train on, %v", train.Len(), err)
	}
}
