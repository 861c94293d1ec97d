package tensorops

import "github.com/troupe-ml/troupe/internal/base/rng"

// GELU records y = x/2·(1 + tanh(√(2/π)(x + 0.044715x³))), GPT-2's form of GELU (Hendrycks and
// Gimpel 2016).
func (l *List) GELU(y, x Tensor) {
	o := l.op(KindGELU)
	GELUArgs{y, x}.Put(o)
	l.need(o, denseEither(y, x) && sameLen(y, x), needSame)
}

// GELUArgs are the operands of KindGELU.
type GELUArgs struct{ Y, X Tensor }

// Put stores the operands.
func (a GELUArgs) Put(o *Op) { o.operands(a.Y, a.X) }

// GELU reads the operands.
func (o *Op) GELU() GELUArgs { return GELUArgs{Y: o.T[0], X: o.T[1]} }

// GELUGrad records dx = dy·GELU′(x); dx may be dy.
func (l *List) GELUGrad(dx, dy, x Tensor) {
	o := l.op(KindGELUGrad)
	GELUGradArgs{dx, dy, x}.Put(o)
	l.need(o, denseEither(dx, dy, x) && sameLen(dx, dy, x), needSame)
}

// GELUGradArgs are the operands of KindGELUGrad.
type GELUGradArgs struct{ DX, DY, X Tensor }

// Put stores the operands.
func (a GELUGradArgs) Put(o *Op) { o.operands(a.DX, a.DY, a.X) }

// GELUGrad reads the operands.
func (o *Op) GELUGrad() GELUGradArgs { return GELUGradArgs{DX: o.T[0], DY: o.T[1], X: o.T[2]} }

// SwiGLU records y = gate·σ(gate)·up (Shazeer 2020).
func (l *List) SwiGLU(y, gate, up Tensor) {
	o := l.op(KindSwiGLU)
	SwiGLUArgs{y, gate, up}.Put(o)
	l.need(o, denseEither(y, gate, up) && sameLen(y, gate, up), needSame)
}

// SwiGLUArgs are the operands of KindSwiGLU.
type SwiGLUArgs struct{ Y, Gate, Up Tensor }

// Put stores the operands.
func (a SwiGLUArgs) Put(o *Op) { o.operands(a.Y, a.Gate, a.Up) }

// SwiGLU reads the operands.
func (o *Op) SwiGLU() SwiGLUArgs { return SwiGLUArgs{Y: o.T[0], Gate: o.T[1], Up: o.T[2]} }

// SwiGLUGrad records the gradients of both inputs. dup may be dy.
func (l *List) SwiGLUGrad(dgate, dup, dy, gate, up Tensor) {
	o := l.op(KindSwiGLUGrad)
	SwiGLUGradArgs{dgate, dup, dy, gate, up}.Put(o)
	l.need(o, denseEither(dgate, dup, dy, gate, up) && sameLen(dgate, dup, dy, gate, up), needSame)
}

// SwiGLUGradArgs are the operands of KindSwiGLUGrad.
type SwiGLUGradArgs struct{ DGate, DUp, DY, Gate, Up Tensor }

// Put stores the operands.
func (a SwiGLUGradArgs) Put(o *Op) { o.operands(a.DGate, a.DUp, a.DY, a.Gate, a.Up) }

// SwiGLUGrad reads the operands.
func (o *Op) SwiGLUGrad() SwiGLUGradArgs {
	return SwiGLUGradArgs{DGate: o.T[0], DUp: o.T[1], DY: o.T[2], Gate: o.T[3], Up: o.T[4]}
}

const needSame = "all are contiguous tensors of float32 or bfloat16 with the same number of elements"

// Dropout records y = x·mask/(1−P), plus skip if it is valid. y may be x or skip. The gradient is
// the same operation on dy.
func (l *List) Dropout(y, x, skip Tensor, m Mask) {
	o := l.op(KindDropout)
	DropoutArgs{y, x, skip, m}.Put(o)
	l.need(o, denseEither(y, x) && sameLen(y, x) && optionalEither(skip, x.Len()) && m.legal(),
		"the same number of elements, and P (number 0) in [0, 1)")
}

// Jitter records y = x·(1 + P·(2u − 1)), plus skip if it is valid, with u uniform in (0, 1]: a factor within P of 1. The random number
// of an element is word i mod 4 of the block (Step, i div 4) of Key, for index i in the global batch. y may be x or skip. The gradient is
// the same operation on dy. Megatron-Core names P moe_input_jitter_eps.
func (l *List) Jitter(y, x, skip Tensor, m Mask) {
	o := l.op(KindJitter)
	DropoutArgs{y, x, skip, m}.Put(o)
	l.need(o, denseEither(y, x) && sameLen(y, x) && optionalEither(skip, x.Len()) && m.legal(),
		"the same number of elements, and P (number 0) in [0, 1)")
}

// DropoutArgs are the operands of KindDropout and KindJitter.
type DropoutArgs struct {
	Y, X, Skip Tensor // skip may be invalid
	Mask       Mask
}

// Put stores the operands.
func (a DropoutArgs) Put(o *Op) {
	o.operands(a.Y, a.X, a.Skip)
	a.Mask.Put(o)
}

// Dropout reads the operands.
func (o *Op) Dropout() DropoutArgs {
	return DropoutArgs{Y: o.T[0], X: o.T[1], Skip: o.T[2], Mask: o.Mask()}
}

// Mask identifies the random bits of one dropout or jitter. Whether an element of the global batch is dropped, or its factor,
// depends only on Key, Step and its index.
type Mask struct {
	Key   rng.Key
	Step  uint64
	First uint64  // index of the tensor's first element in the global batch
	P     float64 // probability of dropping an element, or jitter's largest distance from 1, in [0, 1)
}

// Put stores the mask of an operation that has one.
func (m Mask) Put(o *Op) {
	o.Key, o.U, o.F[0] = m.Key, [2]uint64{m.Step, m.First}, m.P
}

// Mask reads the mask of a dropout, a jitter, an attention or its gradient.
func (o *Op) Mask() Mask { return Mask{Key: o.Key, Step: o.U[0], First: o.U[1], P: o.F[0]} }

// legal reports whether P is a valid probability.
func (m Mask) legal() bool { return m.P >= 0 && m.P < 1 }
