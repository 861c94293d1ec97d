package cuda

import "github.com/troupe-ml/troupe/tensorops"

func rope(x *exec, o *tensorops.Op) error {
	t, heads, period := o.T[0], o.I[0], o.I[1]
	half, periods := t.Cols()/heads/2, t.Rows()/period
	if t.Len() == 0 {
		return nil
	}
	const threads = 256
	blocks := ceil(period*half, threads)
	// A thread keeps its angle for all periods; they are shared out only as far as the
	// device would be idle otherwise.
	shares := max(8*x.processors/blocks, 1)
	return launch(x, "rope", grid{x: blocks, y: min(shares, periods, maxGridY), threads: threads}, &struct {
		x                uint64
		stride           int64
		theta            float64
		heads, half      int32
		period, first    int32
		periods, inverse int32
	}{
		x: address(t), stride: int64(t.Stride()), theta: o.F[0],
		heads: int32(heads), half: int32(half), period: int32(period), first: int32(o.I[2]),
		periods: int32(periods), inverse: number(o.Has(tensorops.FlagInverse)),
	})
}
