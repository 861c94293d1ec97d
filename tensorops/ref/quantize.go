package ref

import (
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/internal/quant"
)

// quantize gives rows the numbers that a quantized type has for others. They are stored as float64: what is rounded is defined
// in float32, so the numbers of the row are rounded to that first.
func quantize(dst, src tensorops.Tensor) {
	format := quant.Int8
	if dst.DType() == tensorops.NF4 {
		format = quant.NF4
	}
	to, from := matrixOf(dst), matrixOf(src)
	row := make([]float32, to.cols)
	m := quant.Matrix{Format: format, Data: make([]byte, format.RowBytes(to.cols)), Cols: to.cols}
	for i := range to.rows {
		for j := range row {
			row[j] = float32(*from.at(i, j))
		}
		format.Encode(m.Data, row)
		m.Numbers(row, 0, quant.Format.Decode)
		for j, v := range row {
			*to.at(i, j) = float64(v)
		}
	}
}
