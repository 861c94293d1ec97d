package attn

import "github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"

// store writes n rows of d results that lie the other way, src[dim][nr], into m from row i on. tmp
// holds nr·d numbers.
func (kn *Kernel) store(m gemm.Matrix, i int, src []float32, d, n int, tmp []float32) {
	nr := kn.Gemm.NR
	switch {
	case m.Half == nil:
		kn.Gemm.Transpose(m.Data[i*m.Row:], m.Row, src, nr, d, n)
	case kn.roundCols != nil:
		kn.roundCols(m, i, src, d, n)
	default:
		kn.Gemm.Transpose(tmp, d, src, nr, d, n)
		kn.round(m, i, tmp, d, n)
	}
}

// round writes n rows of d numbers, one after the other, into a matrix of bfloat16 from row i on.
func (kn *Kernel) round(m gemm.Matrix, i int, src []float32, d, n int) {
	for r := range n {
		kn.vec.ToBF16(m.Half[(i+r)*m.Row:][:d], src[r*d:])
	}
}

// Products stores the product a·b of each row of d numbers; dst has the number of rows. tmp holds two rows.
func (kn *Kernel) Products(dst []float32, a, b gemm.Matrix, d int, tmp []float32) {
	if kn.dots != nil && a.Half != nil && b.Half != nil {
		kn.dots(dst, a, b, d)
		return
	}
	if kn.dotFours != nil && len(dst) > 0 && d >= 4 && d%4 == 0 && a.Half == nil && b.Half == nil {
		kn.dotFours(dst, a, b, d)
		return
	}
	for i := range dst {
		dst[i] = dot(kn.row(a, i, d, tmp), kn.row(b, i, d, tmp[d:]))
	}
}

// row is row i of a matrix of d columns, or a widened copy of it in tmp.
func (kn *Kernel) row(m gemm.Matrix, i, d int, tmp []float32) []float32 {
	if m.Half == nil {
		return m.Data[i*m.Row:][:d]
	}
	kn.vec.FromBF16(tmp[:d], m.Half[i*m.Row:])
	return tmp[:d]
}

// dot is a·b. Every fourth number has a sum of its own, and products are exact.
func dot(a, b []float32) float32 {
	var s0, s1, s2, s3 float64
	b = b[:len(a)]
	for len(a) >= 4 {
		s0 += float64(a[0]) * float64(b[0])
		s1 += float64(a[1]) * float64(b[1])
		s2 += float64(a[2]) * float64(b[2])
		s3 += float64(a[3]) * float64(b[3])
		a, b = a[4:], b[4:]
	}
	for i, v := range a {
		s0 += float64(v) * float64(b[i])
	}
	return float32((s0 + s1) + (s2 + s3))
}
