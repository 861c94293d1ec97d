package cuda

import "github.com/troupe-ml/troupe/tensorops"

func rope(x *exec, o *tensorops.Op) error {
	a := o.RoPE()
	half, periods := a.X.Cols()/a.Heads/2, a.X.Rows()/a.Period
	if a.X.Len() == 0 {
		return nil
	}
	const threads = 256
	blocks := ceil(a.Period*half, threads)
	// A thread keeps its angle for all periods; they are shared out only as far as the
	// device would be idle otherwise.
	shares := max(8*x.processors/blocks, 1)
	bits := halves(a.X)
	return launch(x, mixed("rope", bits), grid{x: blocks, y: min(shares, periods, maxGridY), threads: threads}, &struct {
		x                uint64
		stride           int64
		theta            float64
		factor, low      float64
		high             float64
		heads, half      int32
		period, first    int32
		periods, inverse int32
		original         int32
		halves           uint32
	}{
		x: address(a.X), stride: int64(a.X.Stride()), theta: a.Theta,
		factor: a.Scaling.Factor, low: a.Scaling.Low, high: a.Scaling.High, original: int32(a.Scaling.Original),
		heads: int32(a.Heads), half: int32(half), period: int32(a.Period), first: int32(a.First),
		periods: int32(periods), inverse: number(a.Inverse), halves: bits,
	})
}
