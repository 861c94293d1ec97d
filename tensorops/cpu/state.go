package cpu

import (
	"github.com/troupe-ml/troupe/internal/optstate"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

// stateGrain is the number of blocks of an optimizer's state that are worth a range.
const stateGrain = heavyGrain / optstate.Block

func narrowState(x *exec, lo, hi int) {
	a := x.op.NarrowState()
	random := halves{kernels: x.dev.kernels.vec, words: vec.NewRandom(a.Key, a.Update)}
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
		var bits []uint16
		if !a.Nearest {
			bits = random.of(a.First+uint64(from), to-from)
		}
		if scales != nil {
			scales[b] = optstate.Encode(codes[from:to], in[from:to], a.Root, bits)
		} else {
			optstate.RoundBF16(narrow[from:to], in[from:to], bits)
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

// halves draws the random bits of elements, as optstate.Halves does, by the path's loops.
type halves struct {
	kernels *vec.Kernels
	words   vec.Random
	buf     [optstate.Block/2 + 1 + 34]uint32 // vec.WordsSize of the words of a block that begins with the second half of one
	bits    [optstate.Block + 2]uint16
}

// of returns the random bits of n elements, at most optstate.Block, from index first on. They are valid until the next call.
func (h *halves) of(first uint64, n int) []uint16 {
	skip := int(first % 2)
	words := (skip + n + 1) / 2
	for i, w := range h.kernels.Words(h.buf[:vec.WordsSize(words)], h.words, first/2, words) {
		h.bits[2*i], h.bits[2*i+1] = uint16(w), uint16(w>>16)
	}
	return h.bits[skip:][:n]
}
