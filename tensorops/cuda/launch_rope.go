package cuda

import "github.com/troupe-ml/troupe/tensorops"

// ropePairs is the most pairs of a launch, whose argument has their frequencies: ROPE_PAIRS of rope.cu. So no table
// has to lie on the device, and a graph has its own.
const ropePairs = 256

// ropeArgs is rope_args of rope.cu.
type ropeArgs struct {
	x, starts        uint64
	stride           int64
	scale            float64
	heads, width     int32
	apart, step      int32
	firstPair, some  int32
	period, first    int32
	periods, inverse int32
	halves, _        uint32
	frequencies      [ropePairs]float64
}

func rope(x *exec, o *tensorops.Op) error {
	a := o.RoPE()
	if a.X.Len() == 0 {
		return nil
	}
	bits, pairs, periods := halves(a.X), a.Rotation.Pairs(), a.X.Rows()/a.Period
	args := ropeArgs{
		x: address(a.X), starts: address(a.Starts), stride: int64(a.X.Stride()), scale: a.Rotation.Scale(),
		heads: int32(a.Heads), width: int32(a.X.Cols() / a.Heads), apart: int32(pairs), step: 1,
		period: int32(a.Period), first: int32(a.First),
		periods: int32(periods), inverse: number(a.Inverse), halves: bits,
	}
	if a.Interleaved {
		args.apart, args.step = 1, 2
	}
	for first := 0; first < pairs; first += ropePairs {
		some := min(ropePairs, pairs-first)
		args.firstPair, args.some = int32(first), int32(some)
		for i := range some {
			args.frequencies[i] = a.Rotation.Frequency(first + i)
		}
		const threads = 256
		blocks := ceil(a.Period*some, threads)
		// A thread keeps its angle for all periods; they are shared out only as far as the
		// device would be idle otherwise.
		shares := max(8*x.processors/blocks, 1)
		if err := launch(x, mixed("rope", bits), grid{x: blocks, y: min(shares, periods, maxGridY), threads: threads}, &args); err != nil {
			return err
		}
	}
	return nil
}
