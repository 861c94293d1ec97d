package gorgonia

import (
	"errors"
	"fmt"
	"slices"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/troupe-ml/troupe/tensorops"
)

// instance is a graph for one microbatch in flight, since Gorgonia's operations may have state. It
// has no goroutine. The caller that has taken it runs it: first forward and then, at any time,
// backward.
type instance struct {
	key      string
	program  *program
	inputs   []input
	params   []weight
	float    tensor.Dtype
	values   *memory // of the forward pass
	scratch  *memory // of the backward pass, while it runs and until its results are read
	operands []G.Value
	ran      bool
}

func newInstance(build Build, in []input, params []weight, float tensor.Dtype) (*instance, error) {
	g, err := newGraph(build, in, params, float)
	if err != nil {
		return nil, err
	}
	p, err := newProgram(g)
	if err != nil {
		return nil, err
	}
	x := &instance{program: p, inputs: in, params: params, float: float, values: newMemory(p.forwardSlots)}
	return x, nil
}

// forward computes the outputs. It reads inputs and parameters in place: they must not change until
// the backward pass is over, and Gorgonia does not write to them. The outputs are in the instance's
// memory, valid until its next use.
func (x *instance) forward(in, params []tensorops.Array) ([]tensorops.Array, error) {
	x.ran = false
	p := x.program
	if len(in) != len(p.in) || len(params) != len(p.params) {
		return nil, fmt.Errorf("%w: got %d inputs and %d parameters, but the layer has %d and %d", ErrInput, len(in), len(params), len(p.in),
			len(p.params))
	}
	for i, a := range in {
		if err := x.bind(p.in[i], a, x.inputs[i].shape); err != nil {
			return nil, fmt.Errorf("input %d: %w", i, err)
		}
	}
	for i, a := range params {
		if err := x.bind(p.params[i], a, x.params[i].shape); err != nil {
			return nil, fmt.Errorf("parameter %q: %w", x.params[i].name, err)
		}
	}
	for i := range p.forward {
		if err := x.step(&p.forward[i]); err != nil {
			return nil, fmt.Errorf("forward: %w", err)
		}
	}
	out := make([]tensorops.Array, len(p.out))
	for i, slot := range p.out {
		a, err := x.result(slot, p.outShapes[i])
		if err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
		out[i] = a
	}
	x.ran = true
	return out, nil
}

// bind gives a slot of the forward pass a tensor in the caller's memory. Slot −1 is an input that
// is not used.
func (x *instance) bind(slot int, a tensorops.Array, shape []int) error {
	if !slices.Equal(a.Shape, shape) {
		return fmt.Errorf("%w: the shape is %v, but the graph was built for %v", ErrInput, a.Shape, shape)
	}
	v, err := value(a, x.float)
	if err != nil || slot < 0 {
		return err
	}
	x.set(slot, v)
	return nil
}

func (x *instance) set(slot int, v G.Value) {
	if n := x.program.forwardSlots; slot >= n {
		x.scratch.values[slot-n] = v
		return
	}
	x.values.values[slot] = v
}

func (x *instance) get(slot int) G.Value {
	if c := x.program.constants[slot]; c != nil {
		return c
	}
	if n := x.program.forwardSlots; slot >= n {
		return x.scratch.values[slot-n]
	}
	return x.values.values[slot]
}

// gather returns a step's operands.
func (x *instance) gather(s *step) []G.Value {
	x.operands = x.operands[:0]
	for _, slot := range s.args {
		x.operands = append(x.operands, x.get(slot))
	}
	return x.operands
}

func (x *instance) step(s *step) error {
	own, at := x.values, s.slot
	if n := x.program.forwardSlots; at >= n {
		own, at = x.scratch, at-n
	}
	return s.run(x.gather(s), own, at)
}

// errOrder: backward was called without a forward pass before it.
var errOrder = errors.New("gorgonia: backward without forward")

// backward computes the gradients from those of the outputs, once after each forward pass. scratch
// is memory for intermediate values. It writes the gradients of the inputs for which din has
// numbers, and adds those of the parameters.
func (x *instance) backward(dout, din, dparams []tensorops.Array, scratch *memory) error {
	if !x.ran {
		return errOrder
	}
	x.ran = false
	x.scratch = scratch
	defer x.leaveScratch()
	if err := x.checkBackward(dout, din, dparams); err != nil {
		return err
	}
	p := x.program
	for i, a := range dout {
		if p.dout[i] < 0 {
			continue
		}
		v, err := value(a, x.float)
		if err != nil {
			return fmt.Errorf("gradient of output %d: %w", i, err)
		}
		x.set(p.dout[i], v)
	}
	added := make([]bool, len(dparams))
	for i := range p.backward {
		s := &p.backward[i]
		if s.product != nil {
			done, err := s.product.addTo(dparams[s.product.param], x.gather(s))
			if err != nil {
				return fmt.Errorf("backward: %v: %w", s.op, err)
			}
			if done {
				added[s.product.param] = true
				continue
			}
		}
		if err := x.step(s); err != nil {
			return fmt.Errorf("backward: %w", err)
		}
	}
	for i, a := range din {
		if a.Len() == 0 {
			continue
		}
		if p.din[i] < 0 {
			clear(a.Float)
			clear(a.Double)
			continue
		}
		r, err := x.result(p.din[i], x.inputs[i].shape)
		if err != nil {
			return fmt.Errorf("gradient of input %d: %w", i, err)
		}
		copy(a.Float, r.Float)
		copy(a.Double, r.Double)
	}
	for i, a := range dparams {
		if added[i] {
			continue
		}
		r, err := x.result(p.dparams[i], x.params[i].shape)
		if err != nil {
			return fmt.Errorf("gradient of parameter %q: %w", x.params[i].name, err)
		}
		for j, v := range r.Float {
			a.Float[j] += v
		}
		for j, v := range r.Double {
			a.Double[j] += v
		}
	}
	return nil
}

// leaveScratch releases the caller's memory.
func (x *instance) leaveScratch() {
	for _, slot := range x.program.dout {
		if slot >= 0 {
			x.scratch.values[slot-x.program.forwardSlots] = nil
		}
	}
	x.scratch = nil
}

// checkBackward compares the arguments of backward with the graph.
func (x *instance) checkBackward(dout, din, dparams []tensorops.Array) error {
	p := x.program
	if len(dout) != len(p.out) || len(din) != len(p.in) || len(dparams) != len(p.params) {
		return fmt.Errorf("%w: got gradients of %d outputs, %d inputs and %d parameters, but the layer has %d, %d and %d",
			ErrInput, len(dout), len(din), len(dparams), len(p.out), len(p.in), len(p.params))
	}
	fits := func(a tensorops.Array, shape []int, what string) error {
		if err := a.Check(); err != nil || !slices.Equal(a.Shape, shape) || (a.Double != nil) != (x.float == tensor.Float64) || a.Int != nil {
			return fmt.Errorf("%w: the gradient of %s is %v of shape %v, want %v of shape %v", ErrInput, what, a.DType(), a.Shape, x.float, shape)
		}
		return nil
	}
	for i, a := range dout {
		if err := fits(a, p.outShapes[i], fmt.Sprintf("output %d", i)); err != nil {
			return err
		}
	}
	for i, a := range din {
		if a.Len() == 0 {
			continue
		}
		if !x.inputs[i].grad {
			return fmt.Errorf("%w: the gradient of input %d was requested, but the graph was built without it", ErrInput, i)
		}
		if err := fits(a, x.inputs[i].shape, fmt.Sprintf("input %d", i)); err != nil {
			return err
		}
	}
	for i, a := range dparams {
		if err := fits(a, x.params[i].shape, fmt.Sprintf("parameter %q", x.params[i].name)); err != nil {
			return err
		}
	}
	return nil
}

// result returns a view of a value as an array of a shape.
func (x *instance) result(slot int, shape []int) (tensorops.Array, error) {
	a, err := arrayOf(x.get(slot), shape)
	if err != nil {
		return tensorops.Array{}, err
	}
	return a, a.Check()
}

// release releases the caller's memory.
func (x *instance) release() {
	x.ran = false
	for _, slots := range [][]int{x.program.in, x.program.params} {
		for _, slot := range slots {
			if slot >= 0 {
				x.values.values[slot] = nil
			}
		}
	}
	clear(x.operands[:cap(x.operands)])
}
