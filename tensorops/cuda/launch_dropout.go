package cuda

import "github.com/troupe-ml/troupe/tensorops"

func drop(x *exec, o *tensorops.Op) error {
	a := o.Dropout()
	if a.Mask.P == 0 { // no random bits are needed
		if a.Skip.Valid() {
			return addTo(x, a.Y, a.X, a.Skip)
		}
		return copyTo(x, a.Y, a.X)
	}
	y, in, skip, n := address(a.Y), address(a.X), address(a.Skip), a.Y.Len()
	return elementwise(x, "drop", n, &struct {
		y, x, skip   uint64
		n            int64
		mask         dropout
		aligned, pad uint32
	}{y: y, x: in, skip: skip, n: int64(n), mask: dropoutOf(x, a.Mask), aligned: aligned(y, in, skip)})
}
