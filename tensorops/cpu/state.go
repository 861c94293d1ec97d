package cpu

import (
	"github.com/troupe-ml/troupe/internal/optstate"
	"github.com/troupe-ml/troupe/tensorops"
)

// stateGrain is the number of blocks of an optimizer's state that are worth a range.
const stateGrain = heavyGrain / optstate.Block

func narrowState(x *exec, lo, hi int) {
	a := x.op.NarrowState()
	var random [optstate.Block]uint16
	in, scales := f32(a.X), optional(a.Scales)
	var codes []byte
	var narrow []uint16
	if scales != nil {
		codes = tensorops.Elements[byte](a.To)
	} else {
		narrow = tensorops.Elements[uint16](a.To)
	}
	for b := lo; b < hi; b++ {
		from := b * optstate.Block
		to := min(from+optstate.Block, len(in))
		var halves []uint16
		if !a.Nearest {
			halves = random[:to-from]
			optstate.Halves(halves, a.Key, a.Update, a.First+uint64(from))
		}
		if scales != nil {
			scales[b] = optstate.Encode(codes[from:to], in[from:to], a.Root, halves)
		} else {
			optstate.RoundBF16(narrow[from:to], in[from:to], halves)
		}
	}
}

func widenState(x *exec, lo, hi int) {
	a := x.op.WidenState()
	out, first := f32(a.X), lo*optstate.Block
	out = out[first:min(hi*optstate.Block, len(out))]
	if a.Scales.Valid() {
		optstate.DecodeAt(out, first, tensorops.Elements[byte](a.From), f32(a.Scales), a.Root)
		return
	}
	x.dev.kernels.vec.FromBF16(out, tensorops.Elements[uint16](a.From)[first:])
}
