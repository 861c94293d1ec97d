package stages

import (
	"fmt"
	"io"

	"github.com/troupe-ml/troupe/tensorops"
)

// Layer is a layer that is not built into this package: one of a program's own, or one of
// those that families like "mlp" and "stack" are made of. Its methods record operations
// (tensorops.List) and never compute or wait; what is to be computed in Go goes through
// Pass.Call. They are called by one goroutine for each stage, and by those of several stages at
// a time. A Layer keeps nothing of a microbatch, of which many are under way: that is what
// Pass.Save is for.
//
// Tensors have any type and shape, which may differ from microbatch to microbatch. The layer
// owns none of those that it is given: it must not free them, nor write to them. They are
// there until WeightGrad has returned (in validation until Forward has). What it returns is
// the caller's. It may return what it was given, a parameter, or a view of one. Other tensors
// that it allocates it frees itself, or saves. What it is given has no gaps between rows.
type Layer interface {
	// Params are the layer's parameters; Pass.Weight and Pass.Grad know them by their place
	// here. The same ones each time.
	Params() []LayerParam
	// Forward returns the outputs: as many as Outputs says, or one.
	Forward(p *Pass, in []tensorops.Tensor) (out []tensorops.Tensor)
	// InputGrad returns the gradient of each input, of its shape: float32. dout are those of
	// the outputs. For an input that wants none (Pass.WantsGrad) it may return none. It must
	// not touch the weights' gradients, unless the layer is Whole.
	InputGrad(p *Pass, in, dout []tensorops.Tensor) (din []tensorops.Tensor)
	// WeightGrad adds the parameters' gradients to Pass.Grad. It may come long after
	// InputGrad, which has always gone before.
	WeightGrad(p *Pass, in, dout []tensorops.Tensor)
}

// LayerParam is a parameter of a layer.
type LayerParam struct {
	Name    string // within the layer, such as "weight": in checkpoints the layer's name stands in front
	Shape   []int
	Init    Init
	NoDecay bool // no weight decay, though it has several dimensions; with one there is none
}

// What a Layer may be besides.
type (
	// Outputs: it has more than one output, or none.
	Outputs interface{ Outputs() int }
	// NoGrads: some outputs are such that no gradient goes back through them, as whole numbers
	// are. Those of layers without parameters whose inputs have none have none anyway.
	NoGrads interface{ NoGrad(out int) bool }
	// Fields: it reads fields of the data, by Pass.Field.
	Fields interface{ Fields() []string }
	// Whole: the gradients of inputs and weights can't be computed apart. InputGrad makes both,
	// and WeightGrad is not called: schedules that would like to put the latter off gain
	// nothing by it, and engine plan says so.
	Whole interface{ WholeBackward() bool }
	// Costs: it knows how many floating-point operations its Forward takes for a sample, by
	// which layers are spread over the stages. Of others it is taken to be two for each
	// parameter.
	Costs interface{ FLOPs() float64 }
	// Opener: it needs something that has to be closed, such as goroutines. Each stage opens
	// the layer once, and closes it when the run has ended.
	Opener interface{ Open() (OpenLayer, error) }
	// OpenLayer is an open Layer.
	OpenLayer interface {
		Layer
		io.Closer
	}
	// LossLayer is a layer without outputs that the loss comes from: a model's last one.
	// In training its Forward may compute the gradients of the Report's Sum already, and save
	// them for InputGrad, whose dout is empty. To Pass.Grad it adds in WeightGrad alone: with
	// recomputation Forward comes twice.
	LossLayer interface {
		Layer
		// Report is asked for when the list of Forward has completed. Pass has no List then.
		Report(p *Pass) Report
	}
)

// Pass is what a Layer sees while it records a pass of a microbatch.
type Pass struct {
	*tensorops.List
	c    *pass
	unit *unit
	st   *unitState
	name string // of the pass
}

// Weight is a parameter, by its place in Params, Grad the gradient to add to.
func (p *Pass) Weight(i int) tensorops.Tensor { return p.c.weight(p.unit.params[i]) }

// Grad is the gradient of a parameter in the making.
func (p *Pass) Grad(i int) tensorops.Tensor { return p.c.grad(p.unit.params[i]) }

// Train reports whether a backward follows, and whether to drop out.
func (p *Pass) Train() bool { return p.c.mb.Train }

// Recompute reports whether Forward will be made again for this microbatch, before its
// InputGrad, so that nothing need be kept for that until then. What Save keeps is let go of by
// itself.
func (p *Pass) Recompute() bool { return p.c.mb.Train && p.c.mb.Recompute && !p.st.recompute }

// Step is the number of the training step, from 1.
func (p *Pass) Step() int64 { return p.c.mb.Step }

// Samples is B, the number of samples in the microbatch.
func (p *Pass) Samples() int { return p.c.mb.Sequences }

// FirstSample is the place of the first of them in the whole batch.
func (p *Pass) FirstSample() int { return p.c.mb.FirstSequence }

// BF16 says that matrix products may round their operands to bfloat16.
func (p *Pass) BF16() bool { return p.c.stage.opts.BF16 }

// WantsGrad reports whether anybody asks for the gradient of an input.
func (p *Pass) WantsGrad(i int) bool { return p.unit.wants[i] }

// Field is a field of the data, [B, …]: one of those that the layer's Fields names.
func (p *Pass) Field(name string) tensorops.Tensor { return p.c.field(p.unit, name) }

// Save keeps a tensor under a small number until WeightGrad has returned; a tensor that the
// layer was given or returns, too. Saved returns it; none if there is none.
func (p *Pass) Save(slot int, t tensorops.Tensor) {
	for len(p.st.saved) <= slot {
		p.st.saved = append(p.st.saved, holding{})
	}
	if old := p.st.saved[slot]; old.t.Valid() {
		p.st.replaced = append(p.st.replaced, old) // it is there until this pass ends
	}
	p.st.saved[slot] = holding{t: t}
}

// Free gives back a tensor that the layer has allocated, and neither returns nor saves.
func (p *Pass) Free(t tensorops.Tensor) {
	if !t.Valid() {
		return
	}
	if whose := p.unit.others(p.c, p.st, t); whose != "" { // its memory would be the next tensor's
		p.unit.mistake(p.c, p.name, "it freed %v, which it %s", t, whose)
		return
	}
	for i := range p.st.replaced {
		if h := &p.st.replaced[i]; h.box == nil && h.t.Buffer() == t.Buffer() {
			h.t = tensorops.Tensor{}
		}
	}
	p.List.Free(t)
}

// Saved is what Save has kept.
func (p *Pass) Saved(slot int) tensorops.Tensor {
	if slot >= len(p.st.saved) {
		return tensorops.Tensor{}
	}
	return p.st.saved[slot].t
}

// Host is memory of n numbers that stays where it is as long as the microbatch is under way,
// for Fetch to write to and Report to read.
func (p *Pass) Host(n int) []float64 {
	if cap(p.st.host) < n {
		p.st.host = make([]float64, n)
	}
	p.st.host = p.st.host[:n]
	return p.st.host
}

// State is a value that Forward may leave for the other passes of the same microbatch, and for
// later microbatches to use again.
func (p *Pass) State() *any { return &p.st.own }

// sampleBits is the distance, as a power of two, between the addresses of two samples' random bits: more than a sample has
// numbers, so that they are apart whatever the samples' shapes.
const sampleBits = 40

// Mask names random bits for Dropout, and for an attention, of one of the microbatch's samples: a function of the run's seed,
// the layer's name, site, the step, the sample's place in the whole batch, and an element's place in the sample. So every
// layout and every size of microbatch drops the same. Where samples are filled up to one length, the dimension that was
// filled up has to come first in the sample, or an attention's AttentionOpts.Of has to be the greatest length.
func (p *Pass) Mask(site string, probability float64, sample int) tensorops.Mask {
	if site != "" {
		site = "." + site
	}
	m := p.c.mask(p.unit.site(site, probability), 0)
	if m.P > 0 {
		m.First = uint64(p.FirstSample()+sample) << sampleBits
	}
	return m
}

// Drop records y = x with some numbers set to 0 in training, and the others made larger, each with random bits of its place
// in its sample: see Mask. y and x are [B, …], of two dimensions or more, and may be the same.
func (p *Pass) Drop(y, x tensorops.Tensor, site string, probability float64) {
	n := p.Samples()
	if n == 1 || !x.Valid() || !y.Valid() || x.Rows()%n != 0 { // not valid after an error
		p.Dropout(y, x, tensorops.Tensor{}, p.Mask(site, probability, 0))
		return
	}
	of := func(t tensorops.Tensor, i int) tensorops.Tensor { return sequences{i, i + 1, n}.rows(t) }
	for i := range n {
		p.Dropout(of(y, i), of(x, i), tensorops.Tensor{}, p.Mask(site, probability, i))
	}
}

// Call records an operation of the layer's own, written in Go: see tensorops.Call.
func (p *Pass) Call(what string, reads, writes []tensorops.Tensor, f func(reads, writes []tensorops.Array) error) {
	layer, pass, microbatch := p.unit.name, p.name, p.c.mb.Index
	p.List.Call(tensorops.Call{Name: "layer " + layer + ": " + what, Reads: reads, Writes: writes, Func: f, Wrap: func(err error) error {
		return &LayerError{layer, pass, microbatch, fmt.Errorf("%s: %w", what, err)}
	}})
}

// Collect keeps a copy of a tensor, under a name, for whoever runs the model forward only and
// asks for its outputs. At other times it does nothing.
func (p *Pass) Collect(name string, t tensorops.Tensor) { p.c.collect(name, t) }

// site is a place of the layer where dropout acts.
func (u *unit) site(name string, probability float64) site { return site{u.name + name, probability} }
