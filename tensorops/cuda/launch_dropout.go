package cuda

import "github.com/troupe-ml/troupe/tensorops"

func drop(x *exec, o *tensorops.Op) error {
	if o.F[0] == 0 { // no random bits are needed
		if o.T[2].Valid() {
			return addTo(x, o.T[0], o.T[1], o.T[2])
		}
		return copyTo(x, o.T[0], o.T[1])
	}
	y, in, skip, n := address(o.T[0]), address(o.T[1]), address(o.T[2]), o.T[0].Len()
	return elementwise(x, "drop", n, &struct {
		y, x, skip   uint64
		n            int64
		mask         dropout
		aligned, pad uint32
	}{y: y, x: in, skip: skip, n: int64(n), mask: dropoutOf(x, o), aligned: aligned(y, in, skip)})
}
