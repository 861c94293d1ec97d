package cpu

import (
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/internal/quant"
)

// coded views all rows of the buffer of a quantized tensor, as far as they are known: Offset counts from the first.
func coded(t tensorops.Tensor) *quant.Matrix {
	m := &quant.Matrix{Format: formatOf(t.DType()), Cols: t.Stride()}
	_, to := t.ByteRange()
	m.Data = t.Buffer().Mem[:to]
	return m
}

func formatOf(d tensorops.DType) quant.Format {
	if d == tensorops.NF4 {
		return quant.NF4
	}
	return quant.Int8
}

// quantizeRows takes a range of the rows of a copy into a quantized tensor.
func quantizeRows(x *exec, lo, hi int) {
	a := x.op.Copy()
	to, from, cols := coded(a.Dst), x.values(1, a.Src), a.Src.Cols()
	if cols == 0 {
		return
	}
	first := a.Dst.Offset() / cols
	for n := lo; n < hi; n++ {
		at := n * a.Src.Stride()
		to.Format.Encode(to.Row(first+n), x.get(from, at, at+cols))
	}
}

// widenRows takes a range of the rows of a copy of a quantized tensor.
func widenRows(x *exec, lo, hi int) {
	a := x.op.Copy()
	to, from, cols := x.values(0, a.Dst), coded(a.Src), a.Src.Cols()
	if cols == 0 {
		return
	}
	for n := lo; n < hi; n++ {
		at := n * a.Dst.Stride()
		row := x.room(to, at, at+cols)
		from.Numbers(row, a.Src.Offset()+n*a.Src.Stride(), gemm.Decode)
		x.put(to, at, row)
	}
}
