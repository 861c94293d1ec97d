package tensorops

import "github.com/troupe-ml/troupe/internal/rng"

// GELU records y = x/2·(1 + tanh(√(2/π)(x + 0.044715x³))), GPT-2's form of
// Hendrycks and Gimpel's unit. T: y, x.
func (l *List) GELU(y, x Tensor) {
	l.need(l.op(KindGELU, y, x), dense(Float32, y, x) && sameLen(y, x), needSame)
}

// GELUGrad records dx = dy·GELU′(x); dx may be dy. T: dx, dy, x.
func (l *List) GELUGrad(dx, dy, x Tensor) {
	l.need(l.op(KindGELUGrad, dx, dy, x), dense(Float32, dx, dy, x) && sameLen(dx, dy, x), needSame)
}

// SwiGLU records y = gate·σ(gate)·up (Shazeer 2020). T: y, gate, up.
func (l *List) SwiGLU(y, gate, up Tensor) {
	l.need(l.op(KindSwiGLU, y, gate, up), dense(Float32, y, gate, up) && sameLen(y, gate, up), needSame)
}

// SwiGLUGrad records the gradients of both inputs. dup may be dy.
// T: dgate, dup, dy, gate, up.
func (l *List) SwiGLUGrad(dgate, dup, dy, gate, up Tensor) {
	l.need(l.op(KindSwiGLUGrad, dgate, dup, dy, gate, up),
		dense(Float32, dgate, dup, dy, gate, up) && sameLen(dgate, dup, dy, gate, up), needSame)
}

const needSame = "all are contiguous float32 tensors with the same number of elements"

// Mask names the random bits of one dropout: an element of the global batch is
// dropped or kept by (Key, Step, its index) alone.
type Mask struct {
	Key   rng.Key
	Step  uint64
	First uint64  // index of the tensor's first element in the global batch
	P     float64 // probability of dropping an element, in [0, 1)
}

// put stores the mask in an operation.
func (m Mask) put(o *Op) {
	o.Key, o.U, o.F[0] = m.Key, [2]uint64{m.Step, m.First}, m.P
}

// legal reports whether P is a probability of dropping.
func (m Mask) legal() bool { return m.P >= 0 && m.P < 1 }

// Dropout records y = x·mask/(1−P), plus skip where given. y may be x or skip.
// The gradient is the same operation on dy. T: y, x, skip. F: P.
func (l *List) Dropout(y, x, skip Tensor, m Mask) {
	o := l.op(KindDropout, y, x, skip)
	m.put(o)
	l.need(o, dense(Float32, y, x) && sameLen(y, x) && optional(skip, x.Len()) && m.legal(), "the same number of elements, and P (number 0) in [0, 1)")
}
