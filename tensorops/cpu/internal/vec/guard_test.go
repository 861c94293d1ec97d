package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/guard"
)

// TestEndsAtBorder: operands at the end of readable memory give the bits of others: no loop
// reads or writes beyond a slice.
func TestEndsAtBorder(t *testing.T) {
	onPaths(t, func(t *testing.T, k *Kernels) {
		mem := guard.New(t)
		r := rand.New(rand.NewPCG(1, 2))
		for _, l := range append(rowLoops, loops...) {
			for _, n := range lengths() {
				mem.Reset()
				plain, ends := make([][]float32, l.in), make([][]float32, l.in)
				for j := range plain {
					plain[j], ends[j] = exactly(r, n), mem.Floats(n)
					copy(ends[j], plain[j])
				}
				if got, want := l.run(k, ends), l.run(k, plain); !slices.Equal(got, want) {
					t.Errorf("%s: %d elements: %v, elsewhere %v", l.name, n, got, want)
				}
				for j := range plain {
					same(t, l.name, ends[j], plain[j])
				}
			}
		}
	})
}

// TestHalvesEndAtBorder is TestEndsAtBorder for bfloat16.
func TestHalvesEndAtBorder(t *testing.T) {
	onPaths(t, func(t *testing.T, k *Kernels) {
		mem := guard.New(t)
		r := rand.New(rand.NewPCG(1, 2))
		for _, n := range lengths() {
			mem.Reset()
			x, half, back := mem.Floats(n), mem.Halves(n), mem.Floats(n)
			copy(x, exactly(r, n))
			k.ToBF16(half, x)
			k.FromBF16(back, half)
			for i, v := range x {
				if want := upperHalf(v); half[i] != uint16(want) || math.Float32bits(back[i]) != want<<16 {
					t.Fatalf("%d elements: %x becomes %04x and then %x", n, math.Float32bits(v), half[i], math.Float32bits(back[i]))
				}
			}
		}
	})
}
