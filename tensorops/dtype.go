package tensorops

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops/internal/quant"
)

// DType is the type of a tensor's elements.
type DType uint8

const (
	Float32 DType = iota // IEEE 754 binary32: weights, activations, gradients
	Float64              // IEEE 754 binary64: reported sums (losses, squared norms)
	Int32                // token ids and targets
	// BFloat16 is the upper half of a binary32, for activations and their gradients in mixed
	// precision. An operation widens it, computes in float32, and rounds its result to the nearest
	// number, ties to even.
	BFloat16
	// Int8 and NF4 are frozen weights in 8 and 4 bits. Blocks of QuantBlock numbers of a row share a scale in
	// float32. Copy converts float32 or bfloat16 to these types and back. As B of a product they are
	// widened where the product packs it. No other operation takes them. Package quant has the formats.
	Int8
	NF4
	// Uint8 are the codes of an optimizer's state, which have their scales in a tensor of their own: see List.NarrowState. Only that and
	// WidenState compute with them; Fill, Copy, Upload and Fetch move them.
	Uint8
)

// QuantBlock is how many numbers of a row share a scale in Int8 and NF4.
const QuantBlock = quant.Block

var dtypes = [...]struct {
	name   string
	bytes  int // of an element; 0: of no single one
	format quant.Format
}{
	Float32: {"float32", 4, quant.None}, Float64: {"float64", 8, quant.None}, Int32: {"int32", 4, quant.None},
	BFloat16: {"bfloat16", 2, quant.None}, Int8: {"int8", 0, quant.Int8}, NF4: {"nf4", 0, quant.NF4},
	Uint8: {"uint8", 1, quant.None},
}

// Size returns the number of bytes of an element; 0 for quantized types, whose elements have none of their own:
// see StoredBytes.
func (d DType) Size() int { return dtypes[d].bytes }

// Quantized reports whether d is Int8 or NF4.
func (d DType) Quantized() bool { return d.format() != quant.None }

// format returns how rows are stored.
func (d DType) format() quant.Format { return dtypes[d].format }

// StoredBytes returns the number of bytes of a matrix of a type.
func (d DType) StoredBytes(rows, cols int) int {
	if f := d.format(); f != quant.None {
		return rows * f.RowBytes(cols)
	}
	return rows * cols * d.Size()
}

// Round replaces the numbers of a row by those that a type other than Float64 and Int32 has for them, as Copy does.
func (d DType) Round(row []float32) {
	switch f := d.format(); {
	case f != quant.None && len(row) > 0:
		m := quant.Matrix{Format: f, Data: make([]byte, f.RowBytes(len(row))), Cols: len(row)}
		f.Encode(m.Data, row)
		m.Numbers(row, 0, quant.Format.Decode)
	case d == BFloat16:
		for i, v := range row {
			row[i] = FromBFloat16(ToBFloat16(v))
		}
	}
}

// Known reports whether d is one of the types above that has a size.
func (d DType) Known() bool { return int(d) < len(dtypes) && dtypes[d].bytes > 0 }

func (d DType) String() string {
	if int(d) >= len(dtypes) {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}
