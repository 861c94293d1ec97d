package stages

import (
	"errors"
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/internal/base/caught"
	"github.com/troupe-ml/troupe/tensorops"
)

// ErrNotFinite means that a layer computed NaN or infinity.
var ErrNotFinite = errors.New("not a finite number")

// LayerError is a fault of a Layer: an invalid result, or a panic.
type LayerError struct {
	Layer      string
	Pass       string // "forward", "input gradient", "weight gradient" or "report"
	Microbatch int
	Err        error
}

func (e *LayerError) Error() string {
	return fmt.Sprintf("layer %s, %s of microbatch %d: %v", e.Layer, e.Pass, e.Microbatch, e.Err)
}

func (e *LayerError) Unwrap() error { return e.Err }

// The names of the passes.
const (
	passForward    = "forward"
	passInputGrad  = "input gradient"
	passWeightGrad = "weight gradient"
	passReport     = "report"
)

// unit is a Layer at its place in a model.
type unit struct {
	sym    byte
	name   string
	layer  Layer
	params []use
	wants  []bool // which inputs need a gradient
	outs   int
	fields []string
	whole  bool
}

func newUnit(symbol byte, name string, l Layer) *unit {
	u := &unit{sym: symbol, name: name, layer: l, outs: 1}
	if symbol == SymbolLoss {
		u.outs = 0
	} else if o, ok := l.(Outputs); ok {
		u.outs = max(0, o.Outputs())
	}
	if f, ok := l.(Fields); ok {
		u.fields = f.Fields()
	}
	if w, ok := l.(Whole); ok {
		u.whole = w.WholeBackward()
	}
	return u
}

func (u *unit) symbol() byte       { return u.sym }
func (u *unit) uses() []use        { return u.params }
func (u *unit) linears() []*linear { return nil }
func (u *unit) newState() state    { return new(unitState) }

// flops returns the operations of a forward for one sample.
func (u *unit) flops() float64 {
	if c, ok := u.layer.(Costs); ok {
		return c.FLOPs()
	}
	n := 1.0
	for _, p := range u.params {
		n += 2 * float64(p.param.Len())
	}
	return n
}

// unitState is what is kept of a microbatch for a unit.
type unitState struct {
	in, dout, saved []holding
	replaced        []holding // saved tensors that were replaced, until the pass that replaced them ends
	shapes          []shape   // shapes of the outputs
	host            []float64
	own             any
	recompute       bool
	ts, grads       []tensorops.Tensor // the arguments of the layer
}

type shape struct {
	dtype tensorops.DType
	dims  []int
}

func (s *unitState) drop(l *tensorops.List, all bool) {
	dropAll(l, &s.saved)
	dropAll(l, &s.replaced)
	if all {
		dropAll(l, &s.in)
		dropAll(l, &s.dout)
		s.recompute = false
	}
}

func (s *unitState) tensors(of []holding, to *[]tensorops.Tensor) []tensorops.Tensor {
	*to = (*to)[:0]
	for _, h := range of {
		*to = append(*to, h.t)
	}
	return *to
}

// box is a buffer with a count of its holders; the last holder to release it frees it.
type box struct {
	t    tensorops.Tensor // invalid: a parameter's buffer, which is not freed
	refs int
	home *boxes
}

// boxes makes boxes, and keeps empty ones for reuse.
type boxes struct{ spare []*box }

// hold puts a tensor into a box with one holder.
func (b *boxes) hold(t tensorops.Tensor) holding {
	if k := len(b.spare) - 1; k >= 0 {
		x := b.spare[k]
		b.spare = b.spare[:k]
		x.t, x.refs = t, 1
		return holding{t, x}
	}
	return holding{t, &box{t, 1, b}}
}

// borrow puts a tensor into a box that is never freed.
func (b *boxes) borrow(t tensorops.Tensor) holding {
	h := b.hold(t)
	h.box.t = tensorops.Tensor{}
	return h
}

// holding is a tensor with a holder, whose buffer is in a box.
type holding struct {
	t   tensorops.Tensor
	box *box
}

// letGo releases one hold and reports whether it was the last.
func (b *box) letGo() bool {
	if b.refs--; b.refs > 0 {
		return false
	}
	b.home.spare = append(b.home.spare, b)
	return true
}

// drop releases the holding.
func (h *holding) drop(l *tensorops.List) {
	if h.box != nil && h.box.letGo() {
		l.Free(h.box.t)
	}
	*h = holding{}
}

// take returns a tensor that only the caller owns: the same tensor, or a copy if it has other
// holders.
func (h *holding) take(l *tensorops.List) tensorops.Tensor {
	t := h.t
	if h.box != nil && (!h.box.letGo() || !h.box.t.Valid()) && t.Valid() {
		t = l.AllocLike(h.t)
		l.Copy(t, h.t)
	}
	*h = holding{}
	return t
}

func dropAll(l *tensorops.List, hs *[]holding) {
	for i := range *hs {
		(*hs)[i].drop(l)
	}
	*hs = (*hs)[:0]
}

// boxOf finds the box that already has a tensor's buffer.
func boxOf(t tensorops.Tensor, among ...[]holding) *box {
	for _, hs := range among {
		for _, h := range hs {
			if h.box != nil && h.t.Valid() && h.t.Buffer() == t.Buffer() {
				return h.box
			}
		}
	}
	return nil
}

// call runs a method of a layer. It reports errors of recording and panics as errors of the layer.
func (u *unit) call(p *pass, what string, run func(p *Pass)) {
	if p.Err() != nil {
		return
	}
	defer func() {
		err := p.Err()
		if v := recover(); v != nil {
			err = caught.Panic(v)
		}
		var known *LayerError
		if err != nil && !errors.As(err, &known) {
			p.Replace(&LayerError{u.name, what, p.mb.Index, err})
		}
	}()
	run(&Pass{List: p.List, c: p, unit: u, st: p.state, name: what})
}

// mistake fails the list.
func (u *unit) mistake(p *pass, what, format string, args ...any) {
	p.Fail(&LayerError{u.name, what, p.mb.Index, fmt.Errorf("%w: "+format, append([]any{ErrInput}, args...)...)})
}

// keep puts every tensor that the layer has saved into a box, and releases the tensors that they
// replaced.
func (s *unitState) keep(p *pass, u *unit, others ...[]holding) {
	for i, h := range s.saved {
		if h.box == nil && h.t.Valid() {
			s.saved[i] = u.adopt(p, h.t, append(others, s.in, s.dout, s.saved, s.replaced)...)
		}
	}
	for i := range s.replaced {
		h := &s.replaced[i]
		if h.box == nil && h.t.Valid() && !h.t.Released() {
			*h = u.adopt(p, h.t, append(others, s.in, s.dout, s.saved, s.replaced)...)
		}
	}
	dropAll(p.List, &s.replaced)
}

// adopt holds a tensor that a layer returns or saves: in the box that already has its buffer, or in
// a new one.
func (u *unit) adopt(p *pass, t tensorops.Tensor, among ...[]holding) holding {
	if b := boxOf(t, append(among, p.flight.fields)...); b != nil {
		b.refs++
		return holding{t, b}
	}
	for _, use := range u.params {
		for _, own := range []tensorops.Tensor{p.weight(use), p.grad(use)} {
			if own.Valid() && own.Buffer() == t.Buffer() {
				return p.stage.boxes.borrow(t)
			}
		}
	}
	return p.hold(t)
}

// dense makes a layer's result contiguous, so that other layers do not see where the model is cut:
// tensors from an edge are always contiguous. A view that is not contiguous goes to rest.
func (h holding) dense(p *pass, rest *[]holding) holding {
	if h.t.Contiguous() {
		return h
	}
	t := p.AllocLike(h.t)
	p.Copy(t.Matrix(), h.t.Matrix())
	*rest = append(*rest, h)
	return p.hold(t)
}

// forward records a unit's forward, with its inputs in the state, and returns its outputs. The
// caller holds each of them once.
func (u *unit) forward(p *pass, s *unitState) []holding {
	var out []tensorops.Tensor
	u.call(p, passForward, func(q *Pass) { out = p.layerOf(u).Forward(q, s.tensors(s.in, &s.ts)) })
	outs := make([]holding, u.outs)
	u.freed(p, passForward, s)
	if p.Err() == nil && len(out) != u.outs {
		u.mistake(p, passForward, "it returned %d outputs, want %d", len(out), u.outs)
	}
	if p.Err() != nil {
		return outs
	}
	s.shapes = s.shapes[:0]
	var rest []holding
	for i, t := range out {
		if !t.Valid() || t.Released() {
			u.mistake(p, passForward, "output %d is invalid or was freed", i)
			return outs
		}
		outs[i] = u.adopt(p, t, s.in, outs[:i], rest).dense(p, &rest)
		s.shapes = append(s.shapes, shape{t.DType(), t.Shape()})
		p.verify(u, passForward, "output", i, outs[i].t)
	}
	s.keep(p, u, outs, rest)
	dropAll(p.List, &rest)
	return outs
}

// inputGrad records a unit's input gradient, with the gradients of its outputs in the state, and
// returns those of the inputs that need one. The caller holds each of them once.
func (u *unit) inputGrad(p *pass, s *unitState) []holding {
	if s.recompute {
		outs := u.forward(p, s)
		dropAll(p.List, &outs)
		s.recompute = false
	}
	var din []tensorops.Tensor
	ins := s.tensors(s.in, &s.ts)
	u.call(p, passInputGrad, func(q *Pass) { din = p.layerOf(u).InputGrad(q, ins, s.tensors(s.dout, &s.grads)) })
	grads := make([]holding, len(s.in))
	u.freed(p, passInputGrad, s)
	if p.Err() != nil {
		return grads
	}
	if len(din) > len(grads) {
		u.mistake(p, passInputGrad, "it returned %d gradients, want %d, one for each input", len(din), len(grads))
		return grads
	}
	var rest []holding // mainly gradients that are not needed
	for i, want := range u.wants {
		switch {
		case !want && (i >= len(din) || !din[i].Valid() || din[i].Released()):
			continue
		case i >= len(din) || !din[i].Valid() || din[i].Released():
			u.mistake(p, passInputGrad, "it returned no gradient of input %d, %v", i, ins[i])
			return grads
		case want && (din[i].DType() != tensorops.Float32 || !din[i].SameShape(ins[i])):
			u.mistake(p, passInputGrad, "it returned a gradient of %v for input %d of %v", din[i], i, ins[i])
			return grads
		}
		h := u.adopt(p, din[i], s.in, s.dout, s.saved, s.replaced, grads[:i], rest)
		if !want {
			rest = append(rest, h)
			continue
		}
		grads[i] = h.dense(p, &rest)
		p.verify(u, passInputGrad, "gradient of input", i, grads[i].t)
	}
	s.keep(p, u, grads, rest)
	dropAll(p.List, &rest)
	if u.whole {
		s.drop(p.List, true)
	}
	return grads
}

// weightGrad records a unit's weight gradient, and frees everything that was kept.
func (u *unit) weightGrad(p *pass, s *unitState) {
	if !u.whole {
		u.call(p, passWeightGrad, func(q *Pass) {
			p.layerOf(u).WeightGrad(q, s.tensors(s.in, &s.ts), s.tensors(s.dout, &s.grads))
		})
		u.freed(p, passWeightGrad, s)
		s.keep(p, u)
	}
	s.drop(p.List, true)
}

// others says who owns a tensor, in words that follow "which it"; "" if the layer may free it.
func (u *unit) others(p *pass, s *unitState, t tensorops.Tensor) string {
	for i, all := range [][]holding{s.in, s.dout, s.saved, p.flight.fields} {
		for _, h := range all {
			if h.t.Valid() && h.t.Buffer() == t.Buffer() {
				return [...]string{"got as an input", "got as a gradient", "saves", "reads as a field"}[i]
			}
		}
	}
	for _, use := range u.params {
		if p.weight(use).Buffer() == t.Buffer() || p.grad(use).Buffer() == t.Buffer() {
			return "has as parameter " + use.param.Name
		}
	}
	return ""
}

// freed checks whether a layer has freed a tensor that it does not own or that it saves.
func (u *unit) freed(p *pass, what string, s *unitState) {
	for _, use := range u.params {
		if p.weight(use).Released() || p.grad(use).Released() {
			u.mistake(p, what, "it freed its parameter %q, or the gradient of that parameter", use.param.Name)
		}
	}
	for i, all := range [][]holding{s.in, s.dout, s.saved} {
		for k := range all {
			h := &all[k]
			if !h.t.Released() {
				continue
			}
			u.mistake(p, what, "it freed %v, which it %s", h.t, [...]string{"got as an input", "got as a gradient", "saves"}[i])
			if h.box != nil {
				h.box.t = tensorops.Tensor{} // not again
			}
			h.t = tensorops.Tensor{}
		}
	}
}

// check is a sum of squares with which a layer's output is checked after it is computed.
type check struct {
	unit       *unit
	pass, what string
	i          int
	microbatch int
	host       []float64
}

// verify checks that the results of a program's own layer are finite: then the sum of their squares
// is. (The sum of squares of float32 or bfloat16 numbers can't overflow in float64.)
func (p *pass) verify(u *unit, passName, what string, i int, t tensorops.Tensor) {
	summed := t.DType() == tensorops.Float32 || t.DType() == tensorops.BFloat16
	if u.trusted() || !summed || !t.Contiguous() || p.chunk == nil {
		return
	}
	c := check{u, passName, what, i, p.mb.Index, make([]float64, 1)}
	sum := p.Alloc(tensorops.Float64, 1)
	p.SquaredNorm(sum, t)
	p.Fetch(tensorops.HostBytes(c.host), sum)
	p.Free(sum)
	p.chunk.checks = append(p.chunk.checks, c)
}

// trusted reports whether a layer belongs to this package. Its numbers are checked at the end of
// the step, as those of language models are.
func (u *unit) trusted() bool {
	_, ok := u.layer.(builtIn)
	return ok
}

// Verify returns the error in the numbers of a chunk's last pass, after its list has completed: an
// ErrNotFinite that names the program's layer that computed them.
func (s *Stage) Verify(chunk int) error {
	c := s.chunks[chunk]
	if c == nil {
		return nil
	}
	defer func() { c.checks = c.checks[:0] }()
	for _, k := range c.checks {
		if v := k.host[0]; math.IsNaN(v) || math.IsInf(v, 0) {
			return &LayerError{k.unit.name, k.pass, k.microbatch, fmt.Errorf("%s %d has %w", k.what, k.i, ErrNotFinite)}
		}
	}
	return nil
}
