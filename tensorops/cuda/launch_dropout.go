package cuda

import "github.com/troupe-ml/troupe/tensorops"

func drop(x *exec, o *tensorops.Op) error {
	a := o.Dropout()
	if a.Mask.P == 0 {
		return unmasked(x, a)
	}
	n, half := a.Y.Len(), halves(a.Y, a.X, a.Skip)
	return eightwise(x, "drop", n, &struct {
		y, x, skip      uint64
		n               int64
		mask            dropout
		aligned, halves uint32
	}{y: address(a.Y), x: address(a.X), skip: address(a.Skip), n: int64(n), mask: dropoutOf(x, a.Mask),
		aligned: alignedEights(a.Y, a.X, a.Skip), halves: half})
}

// unmasked is dropout or jitter without random bits.
func unmasked(x *exec, a tensorops.DropoutArgs) error {
	if a.Skip.Valid() {
		return addTo(x, a.Y, a.X, a.Skip)
	}
	return copyTo(x, a.Y, a.X)
}

func jitter(x *exec, o *tensorops.Op) error {
	a := o.Dropout()
	if a.Mask.P == 0 {
		return unmasked(x, a)
	}
	n := a.Y.Len()
	return eightwise(x, "jitter", n, &struct {
		y, x, skip      uint64
		n               int64
		mask            dropout
		p               float64
		aligned, halves uint32
	}{y: address(a.Y), x: address(a.X), skip: address(a.Skip), n: int64(n), mask: dropoutOf(x, a.Mask), p: a.Mask.P,
		aligned: alignedEights(a.Y, a.X, a.Skip), halves: halves(a.Y, a.X, a.Skip)})
}
