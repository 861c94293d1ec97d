package stages

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
)

// Passes records the passes of one rank for the actions of a table. *Stage implements it.
type Passes interface {
	Forward(l *tensorops.List, chunk int, mb *Microbatch, in ...tensorops.Tensor) []tensorops.Tensor
	InputGrad(l *tensorops.List, chunk, index int, dy ...tensorops.Tensor) []tensorops.Tensor
	WeightGrad(l *tensorops.List, chunk, index int)
	Backward(l *tensorops.List, chunk, index int, dy ...tensorops.Tensor) []tensorops.Tensor
	CompleteInput(l *tensorops.List, chunk int, mb *Microbatch, t tensorops.Tensor) tensorops.Tensor
	CompleteGrad(l *tensorops.List, chunk, index int, t tensorops.Tensor) tensorops.Tensor
}

// Act records an action of a table: in a run, in forecasts of memory and time, in the proof that a
// grid's step ends, and in measurements of layers. mb is the microbatch of a forward; other actions
// find theirs by its index. Act owns in, the action's complete inputs (see Arrive). It returns the
// action's outputs, which the caller owns.
func Act(l *tensorops.List, p Passes, a scheduler.Action, mb *Microbatch, in ...tensorops.Tensor) []tensorops.Tensor {
	chunk, index := int(a.Chunk), int(a.Microbatch)
	switch a.Type {
	case scheduler.F:
		return p.Forward(l, chunk, mb, in...)
	case scheduler.I:
		return p.InputGrad(l, chunk, index, in...)
	case scheduler.W:
		p.WeightGrad(l, chunk, index)
	case scheduler.B:
		return p.Backward(l, chunk, index, in...)
	}
	return nil
}

// Forward records a chunk's forward pass. It owns in, the tensors from the chunk's edges in the
// order of Model.Routes. It returns the outputs, which the caller owns. In a language model each is
// one tensor; a chunk that starts with the embedding has no input, and one that ends with the loss
// has no output. Without mb.Train all saved tensors are freed at once, and Finish ends the
// microbatch.
func (s *Stage) Forward(l *tensorops.List, chunk int, mb *Microbatch, in ...tensorops.Tensor) []tensorops.Tensor {
	c := s.chunks[chunk]
	if c == nil || c.live[mb.Index] != nil {
		l.Fail(fmt.Errorf("%w: forward of microbatch %d on chunk %d", ErrMicrobatch, mb.Index, chunk))
		return nil
	}
	in = valid(in)
	f := c.acquire()
	f.mb = *mb
	err := f.takeStarts(s.model)
	if err == nil {
		err = s.hooks.share(f)
	}
	if err == nil {
		err = s.checkEdge(c, "input", len(c.ins), c.mtpBefore, c.widthIn, &f.mb, in)
	}
	if err != nil {
		c.spare = append(c.spare, f)
		l.Fail(err)
		return nil
	}
	in = s.fromEdge(l, in)
	c.live[mb.Index] = f
	p := f.newPass(s, l, c)
	if f.mb.Train && c.computesLoss && s.model.language() { // the head's gradients are computed together with the loss
		s.hooks.beforeWeightGrad(p, len(c.layers)-1)
	}
	f.upload(p, c)
	for i, v := range c.ins {
		f.put(l, c, v, p.hold(in[i]))
	}
	s.hooks.beforeLayers(p, false)
	for i := range c.layers {
		s.hooks.beforeLayer(p, i)
		f.forward(p, c, i)
		s.hooks.afterLayer(p, i)
	}
	out := make([]tensorops.Tensor, 0, len(c.outs))
	for _, v := range c.outs {
		out = append(out, f.values[v].take(l))
	}
	if !f.mb.Train {
		free(l, &f.tokens, &f.targets)
		f.freeStarts(l)
		f.freeFields(l)
	}
	return s.toEdge(l, out)
}

// forward records a layer's forward.
func (f *inFlight) forward(p *pass, c *chunk, i int) {
	l, w, keeps := p.List, &c.wires[i], f.mb.Train && c.back[i]
	switch layer := c.layers[i].(type) {
	case *unit:
		st := f.states[i].(*unitState)
		for _, v := range w.ins {
			st.in = append(st.in, f.values[v])
		}
		p.state = st
		outs := layer.forward(p, st)
		st.recompute = keeps && f.mb.Recompute
		for k, v := range w.outs {
			f.put(l, c, v, outs[k])
		}
		if !keeps || f.mb.Recompute {
			st.drop(l, !keeps)
		}
	case unary:
		var x tensorops.Tensor
		if len(w.ins) > 0 {
			x = f.values[w.ins[0]].take(l)
		}
		y := layer.forward(p, f.states[i], x)
		if len(w.outs) > 0 {
			f.put(l, c, w.outs[0], p.hold(y))
		}
		if !keeps {
			f.states[i].drop(l, true)
		}
	}
}

// InputGrad records a chunk's input gradient (I). It owns dy, the gradients of the chunk's outputs,
// and returns those of its inputs, both in the order of Model.Routes. In a language model each is
// one tensor; the chunk with the loss has no dy, and the one with the embedding returns none.
func (s *Stage) InputGrad(l *tensorops.List, chunk, index int, dy ...tensorops.Tensor) []tensorops.Tensor {
	return s.backward(l, chunk, index, dy, false)
}

// WeightGrad records a chunk's weight gradient (W) and frees what was saved of the microbatch.
func (s *Stage) WeightGrad(l *tensorops.List, chunk, index int) {
	c, f := s.find(chunk, index)
	if f == nil || !f.input {
		l.Fail(fmt.Errorf("%w: weight gradient of microbatch %d on chunk %d", ErrMicrobatch, index, chunk))
		return
	}
	p := f.newPass(s, l, c)
	for i := len(c.layers) - 1; i >= 0; i-- {
		if !f.gradsTogether(c.layers[i], c) {
			f.weightGrad(p, c, i)
		}
	}
	s.hooks.afterGradients(p)
	c.release(l, f)
}

// weightGrad records a layer's weight gradient.
func (f *inFlight) weightGrad(p *pass, c *chunk, i int) {
	if !c.back[i] || frozenLayer(c.layers[i]) {
		return // its state was freed
	}
	p.stage.hooks.beforeWeightGrad(p, i)
	switch layer := c.layers[i].(type) {
	case *unit:
		st := f.states[i].(*unitState)
		p.state = st
		layer.weightGrad(p, st)
	case unary:
		layer.weightGrad(p, f.states[i])
	}
	p.stage.hooks.afterWeightGrad(p, i)
}

// Backward records both (B): I and W of each layer in turn, with the same operations as the two
// separate passes.
func (s *Stage) Backward(l *tensorops.List, chunk, index int, dy ...tensorops.Tensor) []tensorops.Tensor {
	return s.backward(l, chunk, index, dy, true)
}

func (s *Stage) backward(l *tensorops.List, chunk, index int, dy []tensorops.Tensor, weights bool) []tensorops.Tensor {
	c, f := s.find(chunk, index)
	if f == nil || f.input || !f.mb.Train {
		l.Fail(fmt.Errorf("%w: backward of microbatch %d on chunk %d", ErrMicrobatch, index, chunk))
		return nil
	}
	dy = valid(dy)
	if err := s.checkEdge(c, "gradient", len(c.gradOuts), c.mtpBefore+c.mtp, c.widthOut, &f.mb, dy); err != nil {
		l.Fail(err)
		return nil
	}
	dy = s.fromEdge(l, dy)
	p := f.newPass(s, l, c)
	for i, v := range c.gradOuts {
		f.grads[v] = p.hold(dy[i])
	}
	s.hooks.beforeLayers(p, true)
	for i := len(c.layers) - 1; i >= 0; i-- {
		if !c.back[i] {
			continue
		}
		s.hooks.beforeLayer(p, i)
		together := weights || f.gradsTogether(c.layers[i], c)
		f.inputGrad(p, c, i, together)
		if together {
			f.weightGrad(p, c, i)
		}
		s.hooks.afterLayer(p, i)
	}
	f.input = true
	s.hooks.afterGradients(p)
	if weights {
		c.release(l, f)
	}
	out := make([]tensorops.Tensor, 0, len(c.gradIns))
	for _, v := range c.gradIns {
		out = append(out, f.grads[v].take(l))
	}
	return s.toEdge(l, out)
}

// inputGrad records a layer's input gradient; together says that its weight gradient follows at
// once.
func (f *inFlight) inputGrad(p *pass, c *chunk, i int, together bool) {
	w, frozen := &c.wires[i], frozenLayer(c.layers[i])
	p.weightsToo = together && !frozen
	if u, own := c.layers[i].(*unit); p.weightsToo || own && u.whole && !frozen {
		p.stage.hooks.beforeWeightGrad(p, i)
	}
	switch layer := c.layers[i].(type) {
	case *unit:
		st := f.states[i].(*unitState)
		p.state = st
		f.gradsOf(p, w.outs, st)
		grads := layer.inputGrad(p, st)
		for k, v := range w.ins {
			if layer.wants[k] {
				f.addGrad(p, v, grads[k])
			}
		}
	case unary:
		var dy tensorops.Tensor
		if len(w.outs) > 0 {
			dy = f.grads[w.outs[0]].take(p.List)
		}
		dx := layer.inputGrad(p, f.states[i], dy)
		switch {
		case len(w.ins) == 0:
		case slices.Contains(c.noGrad, w.ins[0]):
			p.Free(dx)
		default:
			f.addGrad(p, w.ins[0], p.hold(dx))
		}
	}
	if frozen {
		f.states[i].drop(p.List, true)
	}
}

// gradsTogether reports whether InputGrad also records a layer's weight gradient, since only the
// head's is delayed.
func (f *inFlight) gradsTogether(l layer, c *chunk) bool {
	return f.mb.HeadLater && c.computesLoss && l.symbol() != SymbolLoss
}
