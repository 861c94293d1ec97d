package tensorops

import "fmt"

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
)

var dtypes = [...]struct {
	name  string
	bytes int
}{Float32: {"float32", 4}, Float64: {"float64", 8}, Int32: {"int32", 4}, BFloat16: {"bfloat16", 2}}

// Size returns the number of bytes of an element.
func (d DType) Size() int { return dtypes[d].bytes }

// Known reports whether d is one of the types above.
func (d DType) Known() bool { return int(d) < len(dtypes) }

func (d DType) String() string {
	if int(d) >= len(dtypes) {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}
