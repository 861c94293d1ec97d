package vec

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/optstate"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/guard"
)

// forms are the two codes: of roots, or signed.
var forms = []bool{false, true}

// TestHalves: the random bits are those of optstate.Halves, wherever they begin.
func TestHalves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rng.Key{K0: rapid.Uint32().Draw(t, "k0"), K1: rapid.Uint32().Draw(t, "k1")}
		update, first := rapid.Uint64().Draw(t, "update"), rapid.Uint64Max(1<<60).Draw(t, "first")
		n := rapid.IntRange(0, 600).Draw(t, "n")
		want := make([]uint16, n)
		optstate.Halves(want, key, update, first)
		for _, k := range Available() {
			if got := k.Halves(make([]uint32, HalvesSize(n)), NewRandom(key, update), first, n); !slices.Equal(got, want) {
				t.Fatalf("%s: the bits from element %d on are %x, want %x", k.Name, first, got, want)
			}
		}
	})
}

// anyFloats draws numbers of all bits, or of magnitudes that are near each other.
func anyFloats(r *rand.Rand, n int) []float32 {
	x, near := make([]float32, n), r.Uint32()%250<<23
	for i := range x {
		b := r.Uint32()
		switch r.Uint32() % 16 {
		case 0:
			b &= 1 << 31 // zeros
		case 1, 2, 3: // any
		case 4: // no fraction, or all of it
			b = b&(1<<31) | near | (b&1)*(1<<23-1)
		default:
			b = b&(1<<31|1<<23-1) | max(near, 30<<23) - r.Uint32()%30<<23
		}
		x[i] = math.Float32frombits(b)
	}
	return x
}

// halvesOf draws random bits, often the least and the most.
func halvesOf(r *rand.Rand, n int) []uint16 {
	h := make([]uint16, n)
	for i := range h {
		switch r.Uint32() % 8 {
		case 0:
		case 1:
			h[i] = math.MaxUint16
		default:
			h[i] = uint16(r.Uint32())
		}
	}
	return h
}

// TestRoundHalves: every path rounds to the bits of optstate.RoundBF16, also what is not finite.
func TestRoundHalves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		n := rapid.IntRange(0, 200).Draw(t, "n")
		x, h, want := anyFloats(r, n), halvesOf(r, n), make([]uint16, n)
		if n > 3 {
			x[r.IntN(n)], x[r.IntN(n)], x[r.IntN(n)] = inf, -inf, nan
			x[r.IntN(n)] = math.MaxFloat32
		}
		optstate.RoundBF16(want, x, h)
		for _, k := range Available() {
			got := make([]uint16, n)
			k.RoundHalves(got, x, h)
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%s: %x with the bits %x becomes %x, want %x", k.Name, math.Float32bits(x[i]), h[i], got[i], want[i])
				}
			}
		}
	})
}

// checkState stores a block by every path and reads it again.
func checkState(x []float32, ofRoot bool, halves []uint16) error {
	n := len(x)
	want, wide := make([]byte, n), make([]float32, n)
	wantScale := optstate.Encode(want, x, ofRoot, halves)
	optstate.Decode(wide, want, wantScale, ofRoot)
	for _, k := range Available() {
		codes, back := make([]byte, n), make([]float32, n)
		scale := k.EncodeState(codes, x, ofRoot, halves)
		if math.Float32bits(scale) != math.Float32bits(wantScale) {
			return fmt.Errorf("%s, root %v: the scale of %d elements is %g, want %g", k.Name, ofRoot, n, scale, wantScale)
		}
		for i, c := range codes {
			if c != want[i] {
				return fmt.Errorf("%s, root %v: element %d of %d, %g (%x) by the scale %g with the bits %x, is code %d, want %d",
					k.Name, ofRoot, i, n, x[i], math.Float32bits(x[i]), scale, halves[i], c, want[i])
			}
		}
		k.DecodeState(back, codes, scale, ofRoot)
		for i, v := range back {
			if math.Float32bits(v) != math.Float32bits(wide[i]) && v == v {
				return fmt.Errorf("%s, root %v: code %d by the scale %g is %g, want %g", k.Name, ofRoot, codes[i], scale, v, wide[i])
			}
		}
	}
	return nil
}

// TestState: every path stores blocks in the codes of optstate and reads its numbers.
func TestState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
		n := rapid.IntRange(0, optstate.Block).Draw(t, "n")
		x := anyFloats(r, n)
		finite := rapid.IntRange(0, 9).Draw(t, "damage") > 0
		for i, v := range x {
			if finite && v-v != 0 {
				x[i] = 1
			}
		}
		for _, ofRoot := range forms {
			if err := checkState(x, ofRoot, halvesOf(r, n)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestStateAtValues goes through all values of both codes and the numbers beside them, and through numbers around each border at which
// the code changes with the random bits.
func TestStateAtValues(t *testing.T) {
	near := func(v float32, steps int) (x []float32) {
		for d := -steps; d <= steps; d++ {
			if r := math.Float32frombits(uint32(int(math.Float32bits(v)) + d)); r >= 0 && r <= 1 {
				x = append(x, r)
			}
		}
		return x
	}
	for _, ofRoot := range forms {
		values, halves := optstate.Values(ofRoot), []uint16{0, 1, 0x7fff, 0x8000, 0xfffe, 0xffff}
		for i, v := range values {
			for _, h := range halves {
				x := near(v, 4)
				if i+1 < len(values) {
					next := values[i+1]
					share := (float64(h) + 0.5) / (1 << 16)
					x = append(x, near(float32(float64(v)+share*(float64(next)-float64(v))), 4)...)
				}
				x = append(x, 1) // the scale, of which the others are shares
				for len(x)%32 != 0 {
					x = append(x, x[0])
				}
				for j, r := range x {
					if ofRoot {
						x[j] = r * r
					}
				}
				if err := checkState(x, ofRoot, slices.Repeat([]uint16{h}, len(x))); err != nil {
					t.Fatalf("value %d: %v", i, err)
				}
			}
		}
	}
}

// TestDecodeState reads all codes by every path.
func TestDecodeState(t *testing.T) {
	codes := make([]byte, 256)
	for i := range codes {
		codes[i] = byte(i)
	}
	for _, ofRoot := range forms {
		for _, scale := range []float32{1, 0x1p-40, 3e-5, 1.7e38, inf} {
			want := make([]float32, len(codes))
			optstate.Decode(want, codes, scale, ofRoot)
			onPaths(t, func(t *testing.T, k *Kernels) {
				got := make([]float32, len(codes))
				k.DecodeState(got, codes, scale, ofRoot)
				for i, v := range want {
					if math.Float32bits(got[i]) != math.Float32bits(v) && v == v {
						t.Errorf("root %v: code %d by the scale %g is %g, want %g", ofRoot, i, scale, got[i], v)
					}
				}
			})
		}
	}
}

// TestStateEndsAtBorder: nothing is read or written beyond a slice.
func TestStateEndsAtBorder(t *testing.T) {
	onPaths(t, func(t *testing.T, k *Kernels) {
		mem := guard.New(t)
		r := rand.New(rand.NewPCG(1, 2))
		for n := range optstate.Block + 1 {
			mem.Reset()
			x, halves, codes, low := mem.Floats(n), mem.Halves(n), mem.Bytes(n), mem.Halves(n)
			copy(x, exactly(r, n))
			copy(halves, halvesOf(r, n))
			wantLow, want := make([]uint16, n), make([]byte, n)
			k.RoundHalves(low, x, halves)
			if optstate.RoundBF16(wantLow, x, halves); !slices.Equal(low, wantLow) {
				t.Fatalf("%d elements: bfloat16 %x, want %x", n, low, wantLow)
			}
			for _, ofRoot := range forms {
				wantScale := optstate.Encode(want, x, ofRoot, halves)
				if scale := k.EncodeState(codes, x, ofRoot, halves); scale != wantScale || !bytes.Equal(codes, want) {
					t.Fatalf("%d elements: codes %x by %g, want %x by %g", n, codes, scale, want, wantScale)
				}
				back := mem.Floats(n)
				k.DecodeState(back, codes, wantScale, ofRoot)
				wide := make([]float32, n)
				optstate.Decode(wide, want, wantScale, ofRoot)
				same(t, "read", back, wide)
			}
		}
	})
}

// BenchmarkState reports the time of an element of a block in the cache.
func BenchmarkState(b *testing.B) {
	const n = 1024
	r := rand.New(rand.NewPCG(1, 2))
	x, codes, low, buf := exactly(r, n), make([]byte, n), make([]uint16, n), make([]uint32, HalvesSize(n))
	random := NewRandom(rng.NewKey(1, 2), 3)
	halves := slices.Clone(Go.Halves(buf, random, 0, n))
	blocks := func(f func(lo, hi int)) {
		for lo := 0; lo < n; lo += optstate.Block {
			f(lo, lo+optstate.Block)
		}
	}
	for _, l := range []struct {
		name string
		run  func(k *Kernels)
	}{
		{"random bits", func(k *Kernels) { k.Halves(buf, random, 0, n) }},
		{"bfloat16", func(k *Kernels) { k.RoundHalves(low, x, halves) }},
		{"signed", func(k *Kernels) {
			blocks(func(lo, hi int) { k.EncodeState(codes[lo:hi], x[lo:hi], false, halves[lo:hi]) })
		}},
		{"root", func(k *Kernels) {
			blocks(func(lo, hi int) { k.EncodeState(codes[lo:hi], x[lo:hi], true, halves[lo:hi]) })
		}},
		{"read signed", func(k *Kernels) { blocks(func(lo, hi int) { k.DecodeState(x[lo:hi], codes[lo:hi], 1, false) }) }},
		{"read root", func(k *Kernels) { blocks(func(lo, hi int) { k.DecodeState(x[lo:hi], codes[lo:hi], 1, true) }) }},
	} {
		for _, k := range Available() {
			b.Run(l.name+"/"+k.Name, func(b *testing.B) {
				for b.Loop() {
					l.run(k)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/element")
			})
		}
	}
}
