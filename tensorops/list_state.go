package tensorops

import (
	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/optstate"
)

// StateBlock is how many elements of an optimizer's state share a scale in Uint8.
const StateBlock = optstate.Block

// StateScales returns the number of scales of n elements of an optimizer's state in Uint8.
func StateScales(n int) int { return optstate.Scales(n) }

// NarrowStateOpts says how a part of an optimizer's state is stored.
type NarrowStateOpts struct {
	Root bool // Uint8: x is a mean of squares, of which the roots are stored
	// Nearest rounds to the nearest number instead of at random. Then the fields below have no effect.
	Nearest bool
	// The random bits of element i are a function of Key, Update and First + i.
	Key    rng.Key
	Update uint64 // the number of the update, from 1
	First  uint64 // index of x's first element in its parameter
}

// NarrowState records that a part of an optimizer's state is stored in BFloat16 or Uint8. Package internal/optstate has the forms and
// their sources. With Uint8, scales has StateScales numbers; with BFloat16 it is invalid. x is undefined afterwards. So a device may
// carry out WidenState, an update of x and NarrowState in one pass.
//
// Devices whose memory the host cannot address refuse this and WidenState with ErrUnsupported.
func (l *List) NarrowState(to, scales, x Tensor, n NarrowStateOpts) {
	o := l.op(KindNarrowState)
	NarrowStateArgs{to, scales, x, n}.Put(o)
	l.need(o, dense(Float32, x) && stateFits(to, scales, x.Len()), stateRule)
}

// stateRule is what NarrowState and WidenState need.
const stateRule = "contiguous tensors: x of float32, the state of bfloat16 without scales, or of uint8 with a float32 scale for each " +
	"256 elements, and both with the same number of elements"

// stateFits reports whether a state has n elements and the scales that it needs.
func stateFits(state, scales Tensor, n int) bool {
	if dense(Uint8, state) {
		return state.Len() == n && dense(Float32, scales) && scales.Len() == StateScales(n)
	}
	return dense(BFloat16, state) && state.Len() == n && !scales.Valid()
}

// NarrowStateArgs are the operands of KindNarrowState.
type NarrowStateArgs struct {
	To, Scales, X Tensor // Scales may be invalid
	NarrowStateOpts
}

// Put stores the operands.
func (a NarrowStateArgs) Put(o *Op) {
	o.operands(a.To, a.Scales, a.X)
	o.I = [8]int{asInt(a.Root), asInt(a.Nearest)}
	o.Key, o.U = a.Key, [2]uint64{a.Update, a.First}
}

// NarrowState reads the operands.
func (o *Op) NarrowState() NarrowStateArgs {
	return NarrowStateArgs{To: o.T[0], Scales: o.T[1], X: o.T[2],
		NarrowStateOpts: NarrowStateOpts{Root: o.I[0] != 0, Nearest: o.I[1] != 0, Key: o.Key, Update: o.U[0], First: o.U[1]}}
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// WidenState records x = what NarrowState has stored. root is NarrowStateOpts.Root.
func (l *List) WidenState(x, from, scales Tensor, root bool) {
	o := l.op(KindWidenState)
	WidenStateArgs{x, from, scales, root}.Put(o)
	l.need(o, dense(Float32, x) && stateFits(from, scales, x.Len()), stateRule)
}

// WidenStateArgs are the operands of KindWidenState.
type WidenStateArgs struct {
	X, From, Scales Tensor // Scales may be invalid
	Root            bool
}

// Put stores the operands.
func (a WidenStateArgs) Put(o *Op) {
	o.operands(a.X, a.From, a.Scales)
	o.I[0] = asInt(a.Root)
}

// WidenState reads the operands.
func (o *Op) WidenState() WidenStateArgs {
	return WidenStateArgs{X: o.T[0], From: o.T[1], Scales: o.T[2], Root: o.I[0] != 0}
}
