package tensorops

import "fmt"

// DType is the type of a tensor's elements.
type DType uint8

const (
	Float32 DType = iota // IEEE 754 binary32: weights, activations, gradients
	Float64              // IEEE 754 binary64: sums that are reported (losses, squared norms)
	Int32                // token ids and targets
)

var dtypes = [...]struct {
	name  string
	bytes int
}{Float32: {"float32", 4}, Float64: {"float64", 8}, Int32: {"int32", 4}}

// Size is the number of bytes of an element.
func (d DType) Size() int { return dtypes[d].bytes }

func (d DType) String() string {
	if int(d) >= len(dtypes) {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}
