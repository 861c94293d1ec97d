package attn

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

// Kernel is one path: a matrix product's and the loops over scores, which work
// on rows of as many numbers as a strip has columns (gemm.Kernel.NR).
type Kernel struct {
	Name string
	Gemm *gemm.Kernel
	// bf16 multiplies in place of Gemm, operands rounded to bfloat16, where it is set. Its
	// strips of B are as wide as Gemm's.
	bf16 product

	vec *vec.Kernels

	max   func(top, s []float32, scale float32)           // top[j] = max(top[j], scale·s[i][j])
	exp   func(s, top, sum []float32, scale float32)      // s = e^(scale·s − top[j]), summed up in sum[j]
	scale func(s, f []float32)                            // s[i][j] *= f[j]
	grad  func(p, d, lse, delta []float32, scale float32) // p = e^(scale·p − lse[i]), d = p·(d − delta[i])·scale
	mul   func(s, m []float32)                            // s *= m

	cap      func(s []float32, factor, cap float32)               // s = cap·tanh(factor·s)
	capSlope func(s, slope []float32, factor, cap, scale float32) // the same, and slope = (1 − tanh²)·scale

	dotFours func(dst []float32, a, b gemm.Matrix, d int) // dst[i] = dot(a[i], b[i]), for d a multiple of four; nil: there is none

	// Loops over rows of bfloat16, where there are better ones than vec's.
	dots      func(dst []float32, a, b gemm.Matrix, d int)        // dst[i] = a[i]·b[i]
	roundCols func(m gemm.Matrix, i int, src []float32, d, n int) // see store
}

// Go is the path that every processor can run.
var Go = Kernel{Name: "go", Gemm: &gemm.Go, vec: &vec.Go, max: maxGo, exp: expGo, scale: scaleGo, grad: gradGo, mul: mulGo,
	cap: capGo, capSlope: capSlopeGo}

func maxGo(top, s []float32, scale float32) {
	for i := 0; i < len(s); i += len(top) {
		for j, v := range s[i:][:len(top)] {
			top[j] = max(top[j], v*scale)
		}
	}
}

func expGo(s, top, sum []float32, scale float32) {
	for i := 0; i < len(s); i += len(top) {
		row := s[i:][:len(top)]
		for j, v := range row {
			e := float32(math.Exp(float64(v*scale - top[j])))
			row[j] = e
			sum[j] += e
		}
	}
}

func scaleGo(s, f []float32) {
	for i := 0; i < len(s); i += len(f) {
		for j, v := range f {
			s[i+j] *= v
		}
	}
}

func gradGo(p, d, lse, delta []float32, scale float32) {
	n := gemm.Go.NR
	for i := range len(p) / n {
		row, grad := p[i*n:][:n], d[i*n:][:n]
		for j, v := range row {
			row[j] = float32(math.Exp(float64(v*scale - lse[i])))
			grad[j] = row[j] * (grad[j] - delta[i]) * scale
		}
	}
}

func mulGo(s, m []float32) {
	for i, v := range m[:len(s)] {
		s[i] *= v
	}
}

func capGo(s []float32, factor, limit float32) {
	for i, v := range s {
		s[i] = limit * float32(math.Tanh(float64(v*factor)))
	}
}

func capSlopeGo(s, slope []float32, factor, limit, scale float32) {
	for i, v := range s {
		t := math.Tanh(float64(v * factor))
		s[i], slope[i] = limit*float32(t), float32(1-float64(t*t))*scale
	}
}
