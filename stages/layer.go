package stages

import (
	"fmt"
	"io"

	"github.com/troupe-ml/troupe/tensorops"
)

// Layer is a layer that is not built into this package: a program's own layer, or a layer of
// families such as "mlp" and "stack". Its methods record operations ([Pass] embeds a
// tensorops.List); they never compute or wait. Code that computes in Go goes through [Pass.Call].
// Each stage calls the methods from one goroutine, and several stages may call them at the same
// time. Many microbatches are in flight at once, so a Layer keeps nothing of a microbatch in
// itself: use [Pass.Save].
//
// Tensors may have any type and shape, and the shape may differ between microbatches. The layer
// does not own its inputs: it must neither free them nor write to them. They exist until WeightGrad
// has returned (in validation until Forward has returned). The caller owns the tensors that a
// method returns. A method may return an input, a parameter, or a view of one. The layer must free
// or save every other tensor that it allocates. Inputs are contiguous: they have no gaps between
// rows.
type Layer interface {
	// Params returns the layer's parameters, the same ones in each call. Pass.Weight and Pass.Grad
	// refer to them by their index here.
	Params() []LayerParam
	// Forward returns the outputs: the number given by Outputs, or one.
	Forward(p *Pass, in []tensorops.Tensor) (out []tensorops.Tensor)
	// InputGrad returns the gradient of each input: float32, of the input's shape. dout holds the
	// gradients of the outputs. For an input that needs no gradient (see Pass.WantsGrad) it may
	// return an invalid tensor. It must not change the gradients of the weights, unless the layer
	// is Whole.
	InputGrad(p *Pass, in, dout []tensorops.Tensor) (din []tensorops.Tensor)
	// WeightGrad adds the gradients of the parameters to Pass.Grad. It is always called after
	// InputGrad, possibly much later.
	WeightGrad(p *Pass, in, dout []tensorops.Tensor)
}

// LayerParam declares a parameter of a layer.
type LayerParam struct {
	Name    string // unique within the layer, such as "weight"; checkpoints put the layer's name before it
	Shape   []int
	Init    Init
	NoDecay bool // no weight decay; parameters with one dimension never have it
}

// The optional interfaces of a Layer.
type (
	// Outputs is implemented by a layer with several outputs, or none. Outputs returns their
	// number.
	Outputs interface{ Outputs() int }
	// NoGrads is implemented by a layer with outputs that have no gradient, such as integers. The
	// outputs of a layer without parameters whose inputs have no gradient have none anyway.
	NoGrads interface{ NoGrad(out int) bool }
	// Fields is implemented by a layer that reads fields of the data with Pass.Field. Fields
	// returns their names.
	Fields interface{ Fields() []string }
	// Whole is implemented by a layer that can't compute the gradients of inputs and weights
	// separately. InputGrad computes both, and WeightGrad is not called. Schedules that delay
	// weight gradients gain nothing from such a layer; engine plan says so.
	Whole interface{ WholeBackward() bool }
	// Costs is implemented by a layer that knows the number of floating-point operations of its
	// Forward for one sample. The number is used to spread the layers over the stages. For other
	// layers it is assumed to be two for each parameter.
	Costs interface{ FLOPs() float64 }
	// Opener is implemented by a layer that needs something that must be closed, such as
	// goroutines. Each stage opens the layer once, and closes it at the end of the run.
	Opener interface{ Open() (OpenLayer, error) }
	// OpenLayer is a Layer that was opened.
	OpenLayer interface {
		Layer
		io.Closer
	}
	// LossLayer is a layer without outputs that computes the loss: a model's last layer. In
	// training its Forward may already compute the gradients of the Report's Sum, and save them for
	// InputGrad, whose dout is empty. Only WeightGrad may add to Pass.Grad: with recomputation,
	// Forward runs twice.
	LossLayer interface {
		Layer
		// Report returns the loss of a microbatch. It is called after the list of Forward has
		// completed; then p has no List.
		Report(p *Pass) Report
	}
)

// Pass is the context in which a Layer records one pass of one microbatch. It embeds a
// *tensorops.List, whose methods record operations (go doc tensorops.List shows them):
//
//   - tensors: Alloc, AllocLike, Free, Fill, Copy
//   - products and sums: MatMul, Add, ColSum, SquaredNorm
//   - layers: Attention, CrossEntropy, Dropout, Embed, GELU, LayerNorm, RMSNorm, RoPE, SwiGLU, and their gradients
//   - Call, for a function of your own on the host
type Pass struct {
	*tensorops.List
	c    *pass
	unit *unit
	st   *unitState
	name string // of the pass
}

// Weight returns the parameter with index i in Params.
func (p *Pass) Weight(i int) tensorops.Tensor { return p.c.weight(p.unit.params[i]) }

// Grad returns the accumulator of the gradient of the parameter with index i in Params: float32, of
// the parameter's shape.
func (p *Pass) Grad(i int) tensorops.Tensor { return p.c.grad(p.unit.params[i]) }

// Train reports whether this is training: a backward follows, and dropout is active.
func (p *Pass) Train() bool { return p.c.mb.Train }

// Recompute reports whether Forward will run again for this microbatch before its InputGrad. Then
// nothing needs to be kept until that second run. Tensors of Save are freed automatically.
func (p *Pass) Recompute() bool { return p.c.mb.Train && p.c.mb.Recompute && !p.st.recompute }

// Step returns the number of the training step, counted from 1.
func (p *Pass) Step() int64 { return p.c.mb.Step }

// Samples returns B, the number of samples in the microbatch.
func (p *Pass) Samples() int { return p.c.mb.Sequences }

// FirstSample returns the index of the microbatch's first sample in the whole batch.
func (p *Pass) FirstSample() int { return p.c.mb.FirstSequence }

// BF16 reports whether matrix products may round their operands to bfloat16.
func (p *Pass) BF16() bool { return p.c.stage.opts.BF16 }

// WantsGrad reports whether the gradient of an input is needed.
func (p *Pass) WantsGrad(i int) bool { return p.unit.wants[i] }

// Field returns a field of the data, [B, …]. The layer's Fields must name it.
func (p *Pass) Field(name string) tensorops.Tensor { return p.c.field(p.unit, name) }

// Save keeps a tensor in a slot, a small number, until WeightGrad has returned. The tensor may also
// be an input or an output of the layer.
func (p *Pass) Save(slot int, t tensorops.Tensor) {
	for len(p.st.saved) <= slot {
		p.st.saved = append(p.st.saved, holding{})
	}
	if old := p.st.saved[slot]; old.t.Valid() {
		p.st.replaced = append(p.st.replaced, old) // kept until this pass ends
	}
	p.st.saved[slot] = holding{t: t}
}

// Free frees a tensor that the layer allocated and neither returns nor saves.
func (p *Pass) Free(t tensorops.Tensor) {
	if !t.Valid() {
		return
	}
	if whose := p.unit.others(p.c, p.st, t); whose != "" { // another tensor would reuse its memory
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

// Saved returns the tensor that Save put into a slot; an invalid tensor if the slot is empty.
func (p *Pass) Saved(slot int) tensorops.Tensor {
	if slot >= len(p.st.saved) {
		return tensorops.Tensor{}
	}
	return p.st.saved[slot].t
}

// Host returns memory for n numbers that stays in place while the microbatch is in flight, for
// Fetch to write and Report to read.
func (p *Pass) Host(n int) []float64 {
	if cap(p.st.host) < n {
		p.st.host = make([]float64, n)
	}
	p.st.host = p.st.host[:n]
	return p.st.host
}

// State returns a place for a value that Forward leaves for the other passes of the same
// microbatch. Later microbatches may find the value there and reuse it.
func (p *Pass) State() *any { return &p.st.own }

// sampleBits is the logarithm of the distance between the addresses of two samples' random bits. It
// exceeds the numbers of any sample, so the addresses are distinct whatever the samples' shapes.
const sampleBits = 40

// Mask identifies random bits for Dropout or for an attention, for one of the microbatch's samples.
// They are a function of the run's seed, the layer's name, site, the step, the sample's index in
// the whole batch, and an element's index in the sample. So the same elements are dropped in every
// layout and with every size of microbatch. If samples are padded to one length, the padded
// dimension must be the first of the sample, or an attention's AttentionOpts.Of must be the
// largest length.
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

// Drop records dropout from x to y: in training it sets numbers to 0 with the given probability and
// scales up the others. The random bits are those of Mask at an element's index in its sample. y
// and x are [B, …] with two or more dimensions, and may be the same tensor.
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

// Call records an operation of the layer that is written in Go; see tensorops.Call. It reads and
// writes arrays in host memory, and runs on the CPU only.
func (p *Pass) Call(what string, reads, writes []tensorops.Tensor, f func(reads, writes []tensorops.Array) error) {
	layer, pass, microbatch := p.unit.name, p.name, p.c.mb.Index
	p.List.Call(tensorops.Call{Name: "layer " + layer + ": " + what, Reads: reads, Writes: writes, Func: f, Wrap: func(err error) error {
		return &LayerError{layer, pass, microbatch, fmt.Errorf("%s: %w", what, err)}
	}})
}

// Collect keeps a copy of a tensor under a name, for a forward-only run whose caller requests
// outputs. In other runs it does nothing.
func (p *Pass) Collect(name string, t tensorops.Tensor) { p.c.collect(name, t) }

// site returns a place in the layer where dropout acts.
func (u *unit) site(name string, probability float64) site { return site{u.name + name, probability} }
