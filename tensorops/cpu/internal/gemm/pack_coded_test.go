package gemm_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/guard"
	"github.com/troupe-ml/troupe/tensorops/internal/quant"
)

// TestPackCoded: a B in 8 or 4 bits is multiplied like its numbers in float32, from any row and column on, and
// nothing is read or written outside of what is given.
func TestPackCoded(t *testing.T) {
	for name, kn := range multipliers() {
		if name == "amx" && !hasAMX() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			mem := guard.New(t)
			_, nr := kn.Strips()
			for _, f := range []quant.Format{quant.Int8, quant.NF4} {
				for _, transposed := range []bool{false, true} {
					for _, width := range []int{1, 3, nr - 1, nr, nr + 1, 2*nr + 5, 300} {
						for _, k := range []int{1, 2, 15, 32, 33, 64, 75, 250} {
							mem.Reset()
							wide, coded := codedPair(r, mem, f, k, width, transposed)
							const rows = 3
							a := operand(r, rows, k, false)
							product := func(b gemm.Matrix) []float32 {
								packedA, packedB := mem.Floats(kn.LenA(rows, k)), mem.Floats(kn.LenB(k, width))
								kn.PackA(packedA, a, rows, k)
								kn.PackB(packedB, b, k, width)
								c := gemm.Matrix{Data: make([]float32, rows*width), Row: width, Col: 1}
								kn.Block(c, rows, width, k, packedA, packedB, false)
								return c.Data
							}
							if depth := kn.Depth(k); k > depth {
								continue
							}
							want, got := product(wide), product(coded)
							for i := range want {
								if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
									t.Fatalf("format %d, depth %d × %d, transposed %v: number %d is %v, from float32 %v", f, k, width, transposed, i, got[i], want[i])
								}
							}
							if m := gemm.MemoryB(coded, k, width); m == (gemm.Memory{}) {
								t.Fatal("nothing is fetched")
							}
						}
					}
				}
			}
		})
	}
}

// codedPair makes rows in 8 or 4 bits with 2 rows and 71 columns before a matrix of k × width, and a copy of it in float32.
func codedPair(r *rand.Rand, mem *guard.Memory, f quant.Format, k, width int, transposed bool) (wide, coded gemm.Matrix) {
	rows, cols := k, width
	if transposed {
		rows, cols = width, k
	}
	const row0, col0 = 2, 71
	all := cols + col0 + r.IntN(3)
	floats := mem.Floats((rows + row0) * f.RowBytes(all) / 4)
	m := &quant.Matrix{Format: f, Data: bytesOf(floats), Cols: all}
	wide = gemm.Matrix{Data: make([]float32, rows*cols), Row: cols, Col: 1}
	line := make([]float32, all)
	for i := range rows + row0 {
		for j := range line {
			line[j] = float32(r.NormFloat64())
		}
		f.Encode(m.Row(i), line)
		if i >= row0 {
			m.Numbers(wide.Data[(i-row0)*cols:][:cols], i*all+col0, quant.Format.Decode)
		}
	}
	coded = gemm.Matrix{Coded: m, First: row0*all + col0, Row: all, Col: 1}
	if transposed {
		return wide.T(), coded.T()
	}
	return wide, coded
}

func bytesOf(f []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), 4*len(f))
}

// TestDecode: all loops store the same numbers.
func TestDecode(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const blocks = 37
	codes, scales := make([]byte, blocks*quant.Block), make([]float32, blocks)
	for i := range codes {
		codes[i] = byte(r.Uint32())
	}
	for i := range scales {
		scales[i] = float32(r.NormFloat64())
	}
	for _, f := range []quant.Format{quant.Int8, quant.NF4} {
		want, got := make([]float32, len(codes)), make([]float32, len(codes))
		f.Decode(want, codes, scales)
		gemm.Decode(f, got, codes, scales)
		for i, v := range want {
			if math.Float32bits(v) != math.Float32bits(got[i]) {
				t.Fatalf("format %d: number %d is %v, in Go %v", f, i, got[i], v)
			}
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	codes, scales, dst := make([]byte, 64*quant.Block), make([]float32, 64), make([]float32, 64*quant.Block)
	for _, f := range []quant.Format{quant.Int8, quant.NF4} {
		for name, decode := range map[string]quant.Decoder{"go": quant.Format.Decode, "fastest": gemm.Decode} {
			b.Run([]string{quant.Int8: "int8", quant.NF4: "nf4"}[f]+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(4 * len(dst)))
				for b.Loop() {
					decode(f, dst, codes, scales)
				}
			})
		}
	}
}
