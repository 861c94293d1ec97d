package attn

import (
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

// AVX2 needs what gemm.AVX2 needs.
var AVX2 = Kernel{Name: "avx2", Gemm: &gemm.AVX2, vec: &vec.AVX2, max: maxAVX2, exp: expAVX2, scale: scaleAVX2, grad: gradAVX2,
	mul: mulAVX2, cap: capAVX2, capSlope: capSlopeAVX2, dotFours: dotRows}

// AVX512 needs AVX-512 F, BW, DQ and VL.
var AVX512 = Kernel{Name: "avx512", Gemm: &gemm.AVX512, vec: &vec.AVX512, max: maxAVX512, exp: expAVX512, scale: scaleAVX512,
	grad: gradAVX512, mul: mulAVX512, cap: capAVX512, capSlope: capSlopeAVX512, dotFours: dotRows}

// AVX512BF16 multiplies bfloat16. It needs what AVX512 and gemm.AVX512BF16 need.
var AVX512BF16 = func() Kernel {
	kn := AVX512
	kn.Name, kn.bf16 = "avx512bf16", pairs{&gemm.AVX512BF16}
	kn.dots, kn.roundCols = dotsHalf, roundCols
	kn.cap, kn.capSlope = capAVX512BF16, capSlopeAVX512BF16
	return kn
}()

// AMX multiplies bfloat16 by tiles. It needs what AVX512BF16 and gemm.AMX need.
var AMX = func() Kernel {
	kn := AVX512BF16
	kn.Name, kn.bf16 = "amx", tiles{gemm.AMX}
	return kn
}()

// tiles multiplies bfloat16, in steps of 32 k: its strips of A are as high, so From keeps between steps.
type tiles struct{ gemm.TileKernel }

func (t tiles) InPlace(c []float32, depth int)        { t.StripB(c, c, depth) }
func (tiles) From(o gemm.Operand, k int) gemm.Operand { return o.From(k) }

func dotRows(dst []float32, a, b gemm.Matrix, d int) {
	dotFours(dst, &a.Data[0], &b.Data[0], 4*a.Row, 4*b.Row, d/4)
}

func dotsHalf(dst []float32, a, b gemm.Matrix, d int) {
	dotsBF16(dst, &a.Half[0], &b.Half[0], 2*a.Row, 2*b.Row, d)
}

func roundCols(m gemm.Matrix, i int, src []float32, d, n int) {
	for j := 0; j < n; j += 16 {
		roundCols16(&m.Half[(i+j)*m.Row], &src[j], 2*m.Row, d, n-j)
	}
}
