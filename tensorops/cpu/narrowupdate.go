package cpu

import "github.com/troupe-ml/troupe/tensorops"

// narrowUpdate is operations of a list that read an optimizer's state, update it and store it again, with nothing between them. They are
// carried out together, a few blocks at a time, so that the state in float32 stays in the cache: NarrowState leaves its X undefined, so
// nobody misses it. The bits are those of one operation after the other.
type narrowUpdate struct {
	widen  []tensorops.Op
	update *tensorops.Op // AdamW or SGD
	clear  bool          // the gradient is filled with 0 after it
	narrow []tensorops.Op
}

// count is the number of operations.
func (u *narrowUpdate) count() int {
	n := len(u.widen) + 1 + len(u.narrow)
	if u.clear {
		n++
	}
	return n
}

// narrowUpdateOf finds the operations of an update at the begin of a list.
func narrowUpdateOf(ops []tensorops.Op) (u narrowUpdate, found bool) {
	n := 0
	for n < len(ops) && ops[n].Kind == tensorops.KindWidenState {
		n++
	}
	if n == 0 || n == len(ops) {
		return u, false
	}
	u.widen, u.update, ops = ops[:n], &ops[n], ops[n+1:]
	var state, touched []tensorops.Tensor
	switch u.update.Kind {
	case tensorops.KindAdamW:
		a := u.update.AdamW()
		state, touched = []tensorops.Tensor{a.M, a.V}, []tensorops.Tensor{a.W, a.G, a.Copy}
	case tensorops.KindSGD:
		a := u.update.SGD()
		state, touched = []tensorops.Tensor{a.M}, []tensorops.Tensor{a.W, a.G, a.Copy}
		if len(ops) > 0 && ops[0].Kind == tensorops.KindFill {
			f := ops[0].Fill()
			u.clear = f.Value == 0 && sameElements(f.T, a.G)
			ops = ops[1:]
			if !u.clear {
				return u, false
			}
		}
	default:
		return u, false
	}
	if len(u.widen) != len(state) || len(ops) < len(state) {
		return u, false
	}
	u.narrow = ops[:len(state)]
	for i, wide := range state {
		if u.narrow[i].Kind != tensorops.KindNarrowState {
			return u, false
		}
		from, to := u.widen[i].WidenState(), u.narrow[i].NarrowState()
		if !wide.Valid() || !sameElements(from.X, wide) || !sameElements(to.X, wide) || !sameElements(from.From, to.To) ||
			from.Scales.Valid() && !sameElements(from.Scales, to.Scales) || from.Root != to.Root {
			return u, false
		}
		touched = append(touched, wide, to.To, to.Scales)
	}
	for i, t := range touched {
		for _, other := range touched[:i] {
			if meet(t, other) {
				return u, false
			}
		}
	}
	return u, true
}

func (x *exec) updateNarrow(u narrowUpdate) error {
	x.update = u
	err := x.parallel(tensorops.StateScales(u.widen[0].WidenState().X.Len()), stateGrain, updateBlocks)
	x.update = narrowUpdate{}
	return err
}

// updateBlocks takes a range of blocks.
func updateBlocks(x *exec, lo, hi int) {
	u := &x.update
	var from [2]storedState
	var to [2]narrowing
	for i := range u.widen {
		a := u.widen[i].WidenState()
		from[i], to[i] = stateOf(a.From, a.Scales, a.Root), newNarrowing(u.narrow[i].NarrowState())
	}
	step := x.stateStep(u)
	blocksOf(lo, hi, u.widen[0].WidenState().X.Len(), func(lo, hi int) {
		var wide [2][]float32
		for i := range u.widen {
			wide[i] = scratch(&x.wide[1+i], hi-lo)
			from[i].read(x.dev.kernels.vec, wide[i], lo)
		}
		step(lo, hi, wide[0], wide[1])
		for i := range u.widen {
			to[i].store(x, wide[i], lo)
		}
	})
}

// stateStep returns what updates the elements [lo, hi) with their state. Slot 0 of the operands is the copy of the weight.
func (x *exec) stateStep(u *narrowUpdate) func(lo, hi int, m, v []float32) {
	if u.update.Kind == tensorops.KindAdamW {
		return x.adamW(u.update.AdamW())
	}
	a := u.update.SGD()
	step, g := x.sgd(a), f32(a.G)
	return func(lo, hi int, m, _ []float32) {
		step(lo, hi, m)
		if u.clear {
			clear(g[lo:hi])
		}
	}
}
