package cuda

import "github.com/troupe-ml/troupe/tensorops"

// roundedStride is that of a matrix in bfloat16: each row begins at a multiple of 16 bytes,
// as tensor cores like it.
func roundedStride(t tensorops.Tensor) int { return (t.Cols() + 7) / 8 * 8 }

// roundings are the last A and the last B of products that follow each other, in bfloat16.
// What the products write is all that changes meanwhile.
type roundings [2]struct {
	of tensorops.Tensor
	at uint64
}

// address is where the library reads A or B: in a copy, if that has to be rounded or brought
// to multiples of 16 bytes, which is made in scratch memory unless there is one.
func (m *roundings) address(x *exec, o operand) (uint64, error) {
	t := o.of
	switch {
	case !o.bf16 || o.inPlace():
		return address(t), nil
	case o.packed.Valid():
		return address(o.packed), nil
	}
	for _, c := range m {
		if c.of.Valid() && address(c.of) == address(t) && c.of.Rows() == t.Rows() && c.of.Cols() == t.Cols() && c.of.Stride() == t.Stride() {
			return c.at, nil
		}
	}
	at, err := x.scratch(2 * t.Rows() * roundedStride(t))
	if err != nil {
		return 0, err
	}
	c := &m[o.place]
	c.of, c.at = t, at
	return at, roundTo(x, at, t)
}

// forget drops the copies of what has been written.
func (m *roundings) forget(written tensorops.Tensor) {
	for i := range m {
		if extentOf(m[i].of).meets(extentOf(written)) {
			m[i].of = tensorops.Tensor{}
		}
	}
}

// roundTo writes a matrix in bfloat16 to an address.
func roundTo(x *exec, to uint64, t tensorops.Tensor) error {
	return copyToPlace(x, matrixAt{to, tensorops.BFloat16, roundedStride(t)}, t)
}
