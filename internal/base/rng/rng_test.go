package rng

import (
	"math"
	"math/bits"
	"testing"
)

// The known-answer vectors of the Random123 distribution for philox4x32-10.
func TestBlockKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		key    Key
		hi, lo uint64
		want   [4]uint32
	}{
		{Key{}, 0, 0, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{Key{0xffffffff, 0xffffffff}, math.MaxUint64, math.MaxUint64, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{Key{0xa4093822, 0x299f31d0}, 0x0370734413198a2e, 0x85a308d3243f6a88, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		a, b, d, e := Block(c.key, c.hi, c.lo)
		if got := [4]uint32{a, b, d, e}; got != c.want {
			t.Errorf("Block(%x, %x, %x) = %x, want %x", c.key, c.hi, c.lo, got, c.want)
		}
	}
}

func TestIntnIsTheHighWord(t *testing.T) {
	k := NewKey(7, 3)
	for i := range uint64(1000) {
		n := Uint64(k, 9, i)>>(i%60) + 1
		want, _ := bits.Mul64(Uint64(k, 1, i), n)
		if got := Intn(k, 1, i, n); got != want || got >= n {
			t.Fatalf("Intn(%d of %d) = %d, want %d", i, n, got, want)
		}
	}
}

// A deviate depends on its index, not on where a fill began.
func TestNormalIsPositional(t *testing.T) {
	k := NewKey(1, StringStream("wte"))
	whole := make([]float32, 1003)
	Normal(whole, k, 0, 0, 0.02)
	for _, cut := range []int{0, 1, 2, 3, 4, 5, 777, 1002} {
		part := make([]float32, len(whole)-cut)
		Normal(part, k, uint64(cut), 0, 0.02)
		for i, v := range part {
			if v != whole[cut+i] {
				t.Fatalf("first %d: element %d is %g, want %g", cut, i, v, whole[cut+i])
			}
		}
	}
}

func TestNormalMoments(t *testing.T) {
	x := make([]float32, 1<<16)
	Normal(x, NewKey(42, 0), 0, 1, 2)
	var s, q float64
	for _, v := range x {
		s += float64(v)
	}
	mean := s / float64(len(x))
	for _, v := range x {
		q += (float64(v) - mean) * (float64(v) - mean)
	}
	if std := math.Sqrt(q / float64(len(x))); math.Abs(mean-1) > 0.03 || math.Abs(std-2) > 0.03 {
		t.Fatalf("mean %.4f std %.4f, want 1 and 2", mean, std)
	}
}
