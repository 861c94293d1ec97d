package gemm_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/guard"
)

// stored makes an operand of rows × cols that ends where its memory does, with an
// unreadable page behind it: in float32 and in bfloat16, with the same numbers.
// Between what is its own lie NaNs. The form is nn (rows are contiguous), t (columns
// are) or x (neither).
func stored(r *rand.Rand, mem *guard.Memory, rows, cols int, form string) (wide, half gemm.Matrix) {
	row, col := cols+r.IntN(3), 1
	switch form {
	case "t":
		row, col = 1, rows+r.IntN(3)
	case "x":
		row, col = 2*cols+r.IntN(3), 2
	}
	n := (rows-1)*row + (cols-1)*col + 1
	wide = gemm.Matrix{Data: mem.Floats(n), Row: row, Col: col}
	half = gemm.Matrix{Half: mem.Halves(n), Row: row, Col: col}
	for i := range n {
		wide.Data[i], half.Half[i] = float32(math.NaN()), 0x7fc0
	}
	for i := range rows {
		for j := range cols {
			f := bf16(float32(r.NormFloat64()))
			wide.Data[i*row+j*col], half.Half[i*row+j*col] = f, uint16(math.Float32bits(f)>>16)
		}
	}
	return wide, half
}

// TestPackHalf: a matrix in bfloat16 is packed to the same bytes as its copy in
// float32, and nothing is read or written outside of what is given.
func TestPackHalf(t *testing.T) {
	for name, kn := range multipliers() {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			mem := guard.New(t)
			mr, nr := kn.Strips()
			for _, form := range []string{"n", "t", "x"} {
				for _, width := range []int{1, 3, mr - 1, mr, mr + 1, nr - 1, nr, nr + 1, 2*nr + 5, 300} {
					for _, k := range []int{1, 2, 3, 8, 15, 16, 17, 31, 32, 33, 64, 75, 300} {
						for _, side := range []string{"A", "B"} {
							mem.Reset()
							var wide, half gemm.Matrix
							var length int
							pack := func(dst []float32, m gemm.Matrix) { kn.PackA(dst, m, width, k) }
							if side == "A" {
								wide, half = stored(r, mem, width, k, form)
								length = kn.LenA(width, k)
							} else {
								wide, half = stored(r, mem, k, width, form)
								length = kn.LenB(k, width)
								pack = func(dst []float32, m gemm.Matrix) { kn.PackB(dst, m, k, width) }
							}
							want, got := mem.Floats(length), mem.Floats(length)
							for i := range want {
								want[i], got[i] = 7, 7
							}
							pack(want, wide)
							pack(got, half)
							for i := range want {
								if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
									t.Fatalf("%s of %d × depth %d, form %s: word %d of %d is %#08x, from float32 %#08x", side, width, k, form, i, length,
										math.Float32bits(got[i]), math.Float32bits(want[i]))
								}
							}
						}
					}
				}
			}
		})
	}
}

// roundTo is gemm.Rounded's function.
func roundTo(dst, src []float32) {
	for i, f := range src {
		dst[i] = bf16(f)
	}
}

// portable are the multipliers of every processor's kernels.
func portable() map[string]gemm.Multiplier {
	all := map[string]gemm.Multiplier{}
	for _, kn := range gemm.Available() {
		all[kn.Name] = kn
		all[fmt.Sprintf("rounded %s", kn.Name)] = gemm.Rounded(kn, roundTo)
	}
	return all
}

// bf16 rounds to bfloat16.
func bf16(f float32) float32 {
	b := math.Float32bits(f)
	return math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
}

// BenchmarkPack is the rate of packing from the second-level cache, in bytes read.
func BenchmarkPack(b *testing.B) {
	all := fast()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		kn := all[name]
		for _, side := range []string{"A", "B"} {
			for _, form := range []string{"n", "t"} {
				for _, half := range []bool{false, true} {
					const width, k = 192, 512
					b.Run(fmt.Sprintf("%s/%s/%s/half=%v", name, side, form, half), func(b *testing.B) {
						m := operand(rand.New(rand.NewPCG(1, 1)), width, k, (form == "t") == (side == "A"))
						size := 4
						if half {
							m, size = halved(m), 2
						}
						dst := make([]float32, max(kn.LenA(width, k), kn.LenB(k, width)))
						b.SetBytes(int64(size * width * k))
						for b.Loop() {
							if side == "A" {
								kn.PackA(dst, m, width, k)
							} else {
								kn.PackB(dst, m.T(), k, width)
							}
						}
					})
				}
			}
		}
	}
}
