package cpu

import (
	"github.com/troupe-ml/troupe/internal/optstate"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

const (
	// stateGrain is the number of blocks of an optimizer's state that are worth a range.
	stateGrain = heavyGrain / optstate.Block
	// stateLen is the number of elements of a state that are in float32 at a time, in whole blocks: with the weights and the gradient
	// they stay in the first-level cache.
	stateLen = 4 * optstate.Block
)

// storedState is a part of an optimizer's state in BFloat16 or Uint8.
type storedState struct {
	half   []uint16
	codes  []byte
	scales []float32 // of codes
	root   bool
}

func stateOf(state, scales tensorops.Tensor, root bool) storedState {
	if scales.Valid() {
		return storedState{codes: tensorops.Elements[byte](state), scales: f32(scales), root: root}
	}
	return storedState{half: tensorops.Elements[uint16](state)}
}

// read reads elements from at on, the first of a block.
func (s *storedState) read(k *vec.Kernels, to []float32, at int) {
	if s.half != nil {
		k.FromBF16(to, s.half[at:])
		return
	}
	for from := 0; from < len(to); from += optstate.Block {
		block := to[from:min(from+optstate.Block, len(to))]
		k.DecodeState(block, s.codes[at+from:], s.scales[(at+from)/optstate.Block], s.root)
	}
}

// narrowing stores a part of an optimizer's state.
type narrowing struct {
	storedState
	nearest bool
	random  vec.Random
	first   uint64 // index of the first element in its parameter
}

func newNarrowing(a tensorops.NarrowStateArgs) narrowing {
	return narrowing{stateOf(a.To, a.Scales, a.Root), a.Nearest, vec.NewRandom(a.Key, a.Update), a.First}
}

// store stores elements from at on, the first of a block.
func (n *narrowing) store(x *exec, from []float32, at int) {
	k := x.dev.kernels.vec
	var halves []uint16
	if !n.nearest {
		halves = k.Halves(scratch(&x.random, vec.HalvesSize(len(from))), n.random, n.first+uint64(at), len(from))
	}
	if n.half != nil {
		if to := n.half[at:][:len(from)]; n.nearest {
			optstate.RoundBF16(to, from, nil)
		} else {
			k.RoundHalves(to, from, halves)
		}
		return
	}
	for lo := 0; lo < len(from); lo += optstate.Block {
		hi := min(lo+optstate.Block, len(from))
		var bits []uint16
		if !n.nearest {
			bits = halves[lo:hi]
		}
		n.scales[(at+lo)/optstate.Block] = k.EncodeState(n.codes[at+lo:at+hi], from[lo:hi], n.root, bits)
	}
}

// blocksOf calls f for the elements of the blocks [lo, hi) of n elements, some at a time.
func blocksOf(lo, hi, n int, f func(lo, hi int)) {
	end := min(hi*optstate.Block, n)
	for at := lo * optstate.Block; at < end; at += stateLen {
		f(at, min(at+stateLen, end))
	}
}

func narrowState(x *exec, lo, hi int) {
	a := x.op.NarrowState()
	to, from := newNarrowing(a), f32(a.X)
	blocksOf(lo, hi, len(from), func(lo, hi int) { to.store(x, from[lo:hi], lo) })
}

func widenState(x *exec, lo, hi int) {
	a := x.op.WidenState()
	from, to := stateOf(a.From, a.Scales, a.Root), f32(a.X)
	blocksOf(lo, hi, len(to), func(lo, hi int) { from.read(x.dev.kernels.vec, to[lo:hi], lo) })
}
