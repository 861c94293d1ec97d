package layertest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/caught"
	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// rig is a model with only the layer, on its own stage.
type rig struct {
	o      Options
	find   func(check, format string, args ...any)
	stream tensorops.Stream
	stage  *stages.Stage

	inputs     [microbatches][]tensorops.Array
	fields     [microbatches]map[string]tensorops.Array
	weights    map[string][]float32
	params     []stages.LayerParam
	recompute  bool
	microbatch int     // being recorded
	watching   bool    // copy inputs and outputs
	seen       []*seen // since the last lookAt
	calls      bool    // Forward computes in Go
	size       float64 // magnitude of the numbers in the losses
	got        outcome
}

// outcome holds the results of passes.
type outcome struct {
	losses              [microbatches]float64
	outputs, inputGrads [microbatches][]tensorops.Array
	grads               map[string]tensorops.Array
}

const lossName = "loss"

// build builds the model.
func (r *rig) build(l stages.Layer) (*stages.Model, error) {
	c := stages.Config{}
	for _, f := range r.o.Fields {
		shape := []int{}
		for i, d := range f.Shape {
			if i > 0 {
				shape = append(shape, d)
			}
		}
		c.Fields = append(c.Fields, stages.Field{Name: f.Name, DType: f.DType, Shape: shape, Classes: f.Classes})
	}
	return stages.Build(c, func(g *stages.Graph, _ stages.Config) error {
		var in []stages.Value
		for i := range r.o.Inputs {
			in = append(in, g.Embed("input."+strconv.Itoa(i), &source{r, i})...)
		}
		q := probe{r, l}
		if _, loss := l.(stages.LossLayer); loss {
			g.Loss(r.o.Name, &lossProbe{q}, in...)
			return nil
		}
		out := g.Add(r.o.Name, &q, in...)
		if len(out) == 0 {
			return fmt.Errorf("%w: the layer has no output and is not a LossLayer", stages.ErrModel)
		}
		g.Loss(lossName, &functional{r, len(out)}, out...)
		return nil
	})
}

// newRig makes a rig on a stream.
func newRig(l stages.Layer, o Options, stream tensorops.Stream, find func(check, format string, args ...any)) (*rig, error) {
	r := &rig{o: o, find: find, stream: stream, watching: true, weights: make(map[string][]float32), params: l.Params()}
	for mb := range microbatches {
		r.fields[mb] = make(map[string]tensorops.Array)
		for i, t := range o.Inputs {
			a, err := o.draw(t, fmt.Sprintf("input %d", i), mb)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.inputName(i), err)
			}
			r.inputs[mb] = append(r.inputs[mb], a)
		}
		for _, t := range o.Fields {
			a, err := o.draw(t, "field "+t.Name, mb)
			if err != nil {
				return nil, fmt.Errorf("field %q: %w", t.Name, err)
			}
			r.fields[mb][t.Name] = a
		}
	}
	m, err := r.build(l)
	if err != nil {
		return nil, err
	}
	if r.stage, err = stages.NewStage(m, stream, []stages.ChunkSpec{{Chunk: 0, First: 0, Last: len(m.Symbols())}},
		stages.Options{Seed: o.Seed, Optimizer: stages.Optimizer{Name: stages.SGD}}); err != nil {
		return nil, err
	}
	draw := stages.InitWeights(o.Seed)
	for _, p := range m.Params {
		w, more := make([]float32, p.Len()), make([]float32, p.Len())
		if err := draw(p, "", w); err != nil {
			return nil, err
		}
		// Not the weights of an untrained layer: zeros hide mistakes.
		rng.Normal(more, rng.NewKey(o.Seed, rng.StringStream("layertest/weight/"+p.Name)), 0, 0, 0.25)
		for i := range w {
			w[i] = round(w[i] + more[i])
		}
		r.weights[p.Name] = w
	}
	return r, r.load()
}

func (r *rig) load() error {
	return r.stage.Load(func(p *stages.Param, _ string, dst []float32) error { copy(dst, r.weights[p.Name]); return nil }, false)
}

func (r *rig) inputName(i int) string {
	if name := r.o.Inputs[i].Name; name != "" {
		return fmt.Sprintf("input %d (%s)", i, name)
	}
	return fmt.Sprintf("input %d", i)
}

// run records a pass and executes it.
func (r *rig) run(record func(l *tensorops.List)) (err error) {
	l := r.stream.NewList()
	func() {
		defer func() {
			if v := recover(); v != nil {
				l.Fail(fmt.Errorf("%w. A layer must not free its inputs, nor tensors that it returns or saves", caught.Panic(v)))
			}
		}()
		record(l)
	}()
	if err := tensorops.Run(r.stream, l); err != nil {
		return err
	}
	r.lookAt()
	return r.stage.Verify(0)
}

// passes runs an order such as "F0 F1 B0 I1 W1", in the notation of schedules. V is a forward
// without a backward.
func (r *rig) passes(order string) error {
	r.got = outcome{grads: make(map[string]tensorops.Array)}
	r.size = 0
	for _, pass := range strings.Fields(order) {
		mb, err := strconv.Atoi(pass[1:])
		if err != nil {
			return err
		}
		if err := r.pass(pass[0], mb); err != nil {
			return fmt.Errorf("%s of microbatch %d, in the order %s: %w", passNames[pass[0]], mb, order, err)
		}
	}
	return nil
}

var passNames = map[byte]string{'F': "forward", 'V': "forward without Train", 'B': "backward", 'I': "input gradient",
	'W': "weight gradient"}

func (r *rig) pass(what byte, mb int) (err error) {
	r.microbatch = mb
	switch what {
	case 'F', 'V':
		b := stages.Microbatch{Step: 1, Index: mb, Sequences: r.o.samples(mb), Positions: 1, Train: what == 'F', Recompute: r.recompute}
		for i := range mb {
			b.FirstSequence += r.o.samples(i)
		}
		for _, name := range r.stage.Fields(0) {
			a, ok := r.fields[mb][name]
			if !ok {
				return fmt.Errorf("%w: it reads the field %q, which Options.Fields does not describe", stages.ErrInput, name)
			}
			b.Fields = append(b.Fields, a)
		}
		if err := r.run(func(l *tensorops.List) { r.stage.Forward(l, 0, &b) }); err != nil {
			return err
		}
		defer func() {
			if v := recover(); v != nil {
				err = caught.Panic(v)
			}
		}()
		r.got.losses[mb] = r.stage.Report(0, mb).Sum
		r.stage.Finish(0, mb)
		return nil
	case 'B', 'I':
		r.got.inputGrads[mb] = make([]tensorops.Array, len(r.o.Inputs))
		return r.run(func(l *tensorops.List) {
			if what == 'B' {
				r.stage.Backward(l, 0, mb)
			} else {
				r.stage.InputGrad(l, 0, mb)
			}
		})
	default:
		return r.run(func(l *tensorops.List) { r.stage.WeightGrad(l, 0, mb) })
	}
}

// fetchGrads copies the layer's weight gradients into the outcome, and clears them.
func (r *rig) fetchGrads() error {
	var all []stages.Saved
	if err := r.run(func(l *tensorops.List) { all = r.stage.Grads(l) }); err != nil {
		return err
	}
	for _, s := range all {
		r.got.grads[s.Name] = tensorops.Array{Shape: s.Shape, Float: s.Data}
	}
	return r.run(r.stage.ClearGrads)
}

// paramName returns a parameter's name in the model.
func (r *rig) paramName(i int) string { return r.o.Name + "." + r.params[i].Name }
