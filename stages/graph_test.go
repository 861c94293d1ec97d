package stages_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

func init() {
	stages.RegisterFamily("test-branches", branches)
	stages.RegisterLayer("test-scale", func(o *stages.LayerOptions) (stages.Layer, error) {
		return &scale{factor: o.Float("by", 1)}, nil
	})
}

// branches is a model with all that a graph may have: values that several layers take, near
// and far, in several chunks; layers with two outputs, one of which is used twice or not at
// all; layers that return what they were given; a second input.
func branches(g *stages.Graph, c stages.Config) error {
	x := g.Input("x")
	a := g.Add("a", stages.NewDense(4, 8, "gelu", 0.25), x)[0]
	parts := g.Add("split", &split{}, a)
	b := g.Add("b", stages.NewDense(4, 8, "tanh", 0), parts[0])[0]
	sum := g.Add("sum", &adder{}, a, b, a)[0]
	d := g.Add("d", stages.NewDense(8, 8, "relu", 0), sum)[0]
	late := g.Input("z")
	e := g.Add("e", stages.NewDense(4, 8, "", 0), late)[0]
	f := g.Add("f", stages.NewLayerNorm(8), g.Add("sum2", &adder{}, a, e, d)[0])[0]
	h := g.Add("h", stages.NewDense(8, 8, "gelu", 0), g.Add("sum3", &adder{}, f, a, d)[0])[0]
	i := g.Add("i", stages.NewDense(4, 8, "", 0), parts[1])[0]
	s := g.Add("scale", &scale{factor: 0.5}, g.Add("sum4", &adder{}, h, i, sum)[0])
	out := g.Add("out", stages.NewDense(8, 3, "", 0), g.Add("drop", stages.NewDropout(0.1), s...)...)
	g.Output("hidden", h)
	g.Loss("loss", stages.NewCrossEntropy("y", 3), out...)
	return nil
}

// adder adds its inputs, and hands its output's gradient to each of them as it is.
type adder struct{}

func (*adder) Params() []stages.LayerParam { return nil }

func (*adder) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	y := p.AllocLike(in[0])
	p.Add(y, in[0], in[1])
	for _, x := range in[2:] {
		p.Add(y, y, x)
	}
	return []tensorops.Tensor{y}
}

func (*adder) InputGrad(_ *stages.Pass, in, dout []tensorops.Tensor) (din []tensorops.Tensor) {
	for range in {
		din = append(din, dout[0])
	}
	return din
}

func (*adder) WeightGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) {}

// split cuts rows in two halves, written in Go.
type split struct{}

func (*split) Params() []stages.LayerParam { return nil }
func (*split) Outputs() int                { return 2 }
func (*split) WholeBackward() bool         { return true }

func (*split) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	rows, half := in[0].Rows(), in[0].Cols()/2
	outs := []tensorops.Tensor{p.Alloc(tensorops.Float32, rows, half), p.Alloc(tensorops.Float32, rows, half)}
	p.Call("split", in, outs, func(reads, writes []tensorops.Array) error {
		for r := range rows {
			for k := range writes {
				copy(writes[k].Float[r*half:][:half], reads[0].Float[(2*r+k)*half:][:half])
			}
		}
		return nil
	})
	return outs
}

func (*split) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	dx, half := p.AllocLike(in[0]), in[0].Cols()/2
	for k, d := range dout {
		p.Copy(dx.Columns(k*half, (k+1)*half), d)
	}
	return []tensorops.Tensor{dx}
}

func (*split) WeightGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) {
	panic("the weight gradient of a whole layer is asked for")
}

// scale multiplies by a number that it learns, and by a fixed one.
type scale struct{ factor float64 }

func (*scale) Params() []stages.LayerParam {
	return []stages.LayerParam{{Name: "factor", Shape: []int{1}, Init: stages.Init{Const: 1}}}
}

func (l *scale) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	y := p.AllocLike(in[0])
	p.Call("scale", []tensorops.Tensor{in[0], p.Weight(0)}, []tensorops.Tensor{y}, func(reads, writes []tensorops.Array) error {
		for i, v := range reads[0].Float {
			writes[0].Float[i] = v * reads[1].Float[0] * float32(l.factor)
		}
		return nil
	})
	p.Save(0, y) // as an output
	return []tensorops.Tensor{y}
}

func (l *scale) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	dx := p.AllocLike(in[0])
	p.Call("scale gradient", []tensorops.Tensor{dout[0], p.Weight(0)}, []tensorops.Tensor{dx}, func(reads, writes []tensorops.Array) error {
		for i, v := range reads[0].Float {
			writes[0].Float[i] = v * reads[1].Float[0] * float32(l.factor)
		}
		return nil
	})
	return []tensorops.Tensor{dx}
}

func (l *scale) WeightGrad(p *stages.Pass, in, dout []tensorops.Tensor) {
	p.Call("scale weight gradient", []tensorops.Tensor{dout[0], p.Saved(0), p.Weight(0)}, []tensorops.Tensor{p.Grad(0)},
		func(reads, writes []tensorops.Array) error {
			var sum float64
			for i, v := range reads[0].Float {
				sum += float64(v) * float64(reads[1].Float[i]) / float64(reads[2].Float[0])
			}
			writes[0].Float[0] += float32(sum)
			return nil
		})
}

var branchFields = []stages.Field{{Name: "x", Shape: []int{4}}, {Name: "z", Shape: []int{4}},
	{Name: "y", DType: tensorops.Int32, Classes: 3}}

// graphPipe is a model of a graph, cut into chunks that are each on a stage of its own.
type graphPipe struct {
	t      testing.TB
	routes []stages.Route
	specs  []stages.ChunkSpec
	stages []*stages.Stage
	stream []tensorops.Stream
}

func newGraphPipe(t testing.TB, dev tensorops.Device, m *stages.Model, cuts []int) *graphPipe {
	t.Helper()
	p := &graphPipe{t: t}
	from := 0
	for i, to := range append(append([]int{}, cuts...), len(m.Symbols())) {
		p.specs = append(p.specs, stages.ChunkSpec{Chunk: i, First: from, Last: to})
		from = to
	}
	p.routes = m.Routes(p.specs)
	for _, spec := range p.specs {
		s := dev.NewStream(fmt.Sprintf("chunk %d", spec.Chunk))
		st, err := stages.NewStage(m, s, []stages.ChunkSpec{spec}, stages.Options{Seed: 5, Optimizer: adamw})
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Load(stages.InitWeights(5), false); err != nil {
			t.Fatal(err)
		}
		p.stages, p.stream = append(p.stages, st), append(p.stream, s)
	}
	return p
}

func (p *graphPipe) run(v int, record func(l *tensorops.List)) error {
	l := p.stream[v].NewList()
	record(l)
	if err := tensorops.Run(p.stream[v], l); err != nil {
		return err
	}
	return p.stages[v].Verify(v)
}

// graphBatch draws a microbatch.
func graphBatch(index int) (stages.Microbatch, map[string]tensorops.Array) {
	const samples = 5
	x, z, y := tensorops.NewArray(tensorops.Float32, []int{samples, 4}), tensorops.NewArray(tensorops.Float32, []int{samples, 4}),
		tensorops.NewArray(tensorops.Int32, []int{samples})
	rng.Normal(x.Float, rng.NewKey(1, uint64(index)), 0, 0, 1)
	rng.Normal(z.Float, rng.NewKey(2, uint64(index)), 0, 0, 1)
	for i := range y.Int {
		y.Int[i] = int32(rng.Intn(rng.NewKey(3, uint64(index)), 0, uint64(i), 3))
	}
	return stages.Microbatch{Step: 1, Index: index, FirstSequence: index * samples, Sequences: samples, Positions: 1, Train: true},
		map[string]tensorops.Array{"x": x, "z": z, "y": y}
}

// passes takes microbatches forward and back, several under way at a time.
func (p *graphPipe) passes(count int, split, recompute bool, fields func(int) (stages.Microbatch,
	map[string]tensorops.Array)) (loss float64, err error) {
	acc := stages.NewAccumulator()
	for index := range count {
		mb, data := fields(index)
		mb.Recompute = recompute
		inbox := make([][]tensorops.Tensor, len(p.stages))
		for v := range p.stages {
			inbox[v] = make([]tensorops.Tensor, len(p.routes[v].Ins))
		}
		for v, s := range p.stages {
			mb.Fields = nil
			for _, name := range s.Fields(v) {
				mb.Fields = append(mb.Fields, data[name])
			}
			var out []tensorops.Tensor
			if err := p.run(v, func(l *tensorops.List) { out = s.Forward(l, v, &mb, inbox[v]...) }); err != nil {
				return 0, err
			}
			for i, to := range p.routes[v].Outs {
				inbox[to.Chunk][to.Slot] = out[i]
			}
		}
		last := len(p.stages) - 1
		if err := acc.Add(index, p.stages[last].Report(last, index)); err != nil {
			return 0, err
		}
	}
	for index := range count {
		grads := make([][]tensorops.Tensor, len(p.stages))
		for v := range p.stages {
			grads[v] = make([]tensorops.Tensor, len(p.routes[v].GradOuts))
		}
		for v := len(p.stages) - 1; v >= 0; v-- {
			s := p.stages[v]
			var out []tensorops.Tensor
			record := func(l *tensorops.List) { out = s.Backward(l, v, index, grads[v]...) }
			if split {
				record = func(l *tensorops.List) { out = s.InputGrad(l, v, index, grads[v]...) }
			}
			if err := p.run(v, record); err != nil {
				return 0, err
			}
			if split {
				if err := p.run(v, func(l *tensorops.List) { s.WeightGrad(l, v, index) }); err != nil {
					return 0, err
				}
			}
			for i, to := range p.routes[v].GradIns {
				grads[to.Chunk][to.Slot] = out[i]
			}
		}
	}
	return acc.Loss(), nil
}

// grads are all gradients, by parameter.
func (p *graphPipe) grads() map[string][]float32 {
	all := make(map[string][]float32)
	for v, s := range p.stages {
		var saved []stages.Saved
		if err := p.run(v, func(l *tensorops.List) { saved = s.Grads(l) }); err != nil {
			p.t.Fatal(err)
		}
		for _, g := range saved {
			all[g.Name] = g.Data
		}
	}
	return all
}

// TestGraphBits: wherever a graph is cut, losses and gradients are the same to the last bit,
// and nothing is left of a microbatch.
func TestGraphBits(t *testing.T) {
	m, err := stages.NewModel(stages.Config{Family: "test-branches", Fields: branchFields})
	if err != nil {
		t.Fatal(err)
	}
	n := len(m.Symbols())
	var wantLoss float64
	var want map[string][]float32
	cuts := [][]int{nil, {1}, {2, 5}, {3, 3, 9}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {n - 1}, {0, 4, 8, 12, n}}
	var all []int
	for i := range n - 1 {
		all = append(all, i+1)
	}
	cuts = append(cuts, all)
	for _, cut := range cuts {
		for _, how := range []struct{ split, recompute bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
			if len(cut) > 0 && cut[len(cut)-1] == n {
				cut = cut[:len(cut)-1]
			}
			dev, err := cpu.New(cpu.Options{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			p := newGraphPipe(t, dev, m, cut)
			before := dev.Memory().InUse
			loss, err := p.passes(3, how.split, how.recompute, graphBatch)
			if err != nil {
				t.Fatal(err)
			}
			if got := dev.Memory().InUse; got != before {
				t.Errorf("cuts %v, %+v: %d bytes are in use after a step, %d before", cut, how, got, before)
			}
			grads := p.grads()
			if want == nil {
				wantLoss, want = loss, grads
				if !(loss > 0.5 && loss < 5) || len(want) != len(m.Params) {
					t.Fatalf("the loss is %g, with %d gradients of %d", loss, len(want), len(m.Params))
				}
			}
			if math.Float64bits(loss) != math.Float64bits(wantLoss) {
				t.Errorf("cuts %v, %+v: loss %v, want %v", cut, how, loss, wantLoss)
			}
			for name, g := range grads {
				for i, v := range g {
					if math.Float32bits(v) != math.Float32bits(want[name][i]) {
						t.Errorf("cuts %v, %+v: the gradient of %s differs: %v, want %v", cut, how, name, v, want[name][i])
						break
					}
				}
			}
			dev.Close()
		}
	}
}

// TestGraphGradient: the gradients of a graph are its slopes.
func TestGraphGradient(t *testing.T) {
	m, err := stages.NewModel(stages.Config{Family: "test-branches", Fields: branchFields})
	if err != nil {
		t.Fatal(err)
	}
	dev := ref.New()
	t.Cleanup(dev.Close)
	p := newGraphPipe(t, dev, m, nil)
	if _, err := p.passes(1, false, false, graphBatch); err != nil {
		t.Fatal(err)
	}
	grads := p.grads()
	weights := make(map[string][]float32)
	draw := stages.InitWeights(5)
	for _, w := range m.Params {
		weights[w.Name] = make([]float32, w.Len())
		if err := draw(w, "", weights[w.Name]); err != nil {
			t.Fatal(err)
		}
	}
	lossAt := func(name string, j int, by float32) float64 {
		weights[name][j] += by
		err := p.stages[0].Load(func(w *stages.Param, _ string, dst []float32) error { copy(dst, weights[w.Name]); return nil }, false)
		weights[name][j] -= by
		if err != nil {
			t.Fatal(err)
		}
		loss, err := p.passes(1, false, false, graphBatch)
		if err != nil {
			t.Fatal(err)
		}
		return loss * 5 // samples
	}
	for name, g := range grads {
		for j := 0; j < len(g); j += 1 + len(g)/5 {
			const h = 1.0 / 512 // parts of the model are in float32
			slope := (lossAt(name, j, h) - lossAt(name, j, -h)) / (2 * h)
			if math.Abs(float64(g[j])-slope) > 2e-3*(1+math.Abs(slope)) {
				t.Errorf("%s[%d]: gradient %.6g, slope %.6g", name, j, g[j], slope)
			}
		}
	}
}

// broken is a layer with a mistake.
type broken struct{ how string }

func (*broken) Params() []stages.LayerParam {
	return []stages.LayerParam{{Name: "w", Shape: []int{4}}}
}

func (l *broken) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	switch l.how {
	case "panics":
		panic("out of ideas")
	case "panics later":
		p.Call("work", nil, nil, func(_, _ []tensorops.Array) error { panic("out of ideas") })
	case "fails":
		p.Call("work", nil, nil, func(_, _ []tensorops.Array) error { return errors.New("out of ideas") })
	case "no output":
		return nil
	case "misfit":
		p.Add(p.AllocLike(in[0]), in[0], p.Weight(0))
	case "wide":
		return []tensorops.Tensor{p.Alloc(tensorops.Float32, 5, 7)}
	case "frees":
		p.Free(in[0])
	case "frees what it saves":
		y := p.Alloc(tensorops.Float32, 5, 1000) // nobody else gets its buffer
		p.Save(0, y)
		p.Free(y)
	case "returns what it freed":
		y := p.AllocLike(in[0])
		p.Free(y)
		return []tensorops.Tensor{y}
	case "unknown field":
		return []tensorops.Tensor{p.Field("nowhere")}
	}
	y := p.AllocLike(in[0])
	p.Copy(y, in[0])
	if l.how == "NaN" {
		p.Fill(y, math.NaN())
	}
	return []tensorops.Tensor{y}
}

func (l *broken) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	return []tensorops.Tensor{dout[0]}
}

func (l *broken) WeightGrad(p *stages.Pass, _, _ []tensorops.Tensor) {
	if l.how == "panics in the weight gradient" {
		panic("out of ideas")
	}
}

// badGrad is a layer whose input gradient is wrong.
type badGrad struct {
	broken
	grads func(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor
}

func (l *badGrad) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	return l.grads(p, in, dout)
}

// TestBrokenLayers: each mistake of a layer is an error that names it, and the pass.
func TestBrokenLayers(t *testing.T) {
	run := func(t *testing.T, l stages.Layer) error {
		t.Helper()
		stages.RegisterFamily("test-"+strings.ReplaceAll(strings.ToLower(t.Name()[len("TestBrokenLayers/"):]), "_", "-"),
			func(g *stages.Graph, c stages.Config) error {
				x := g.Add("first", stages.NewDense(4, 4, "", 0), g.Input("x"))
				y := g.Add("dense", stages.NewDense(4, 3, "", 0), g.Add("broken", l, x...)...)
				g.Loss("loss", stages.NewCrossEntropy("y", 3), y...)
				return nil
			})
		m, err := stages.NewModel(stages.Config{Family: "test-" + strings.ReplaceAll(strings.ToLower(t.Name()[len("TestBrokenLayers/"):]), "_",
			"-"), Fields: branchFields})
		if err != nil {
			t.Fatal(err)
		}
		dev, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		_, err = newGraphPipe(t, dev, m, []int{2}).passes(1, false, false, graphBatch)
		return err
	}
	for how, c := range map[string]struct {
		err  error
		says string
	}{
		"panics":       {nil, "layer broken, forward of microbatch 0: panic: out of ideas"},
		"panics later": {nil, "layer broken, forward of microbatch 0: work: panic: out of ideas (stages_test.(*broken).Forward"},
		"fails":        {nil, "layer broken, forward of microbatch 0: work: out of ideas"},
		"no output":    {stages.ErrInput, "it returned 0 outputs, want 1"},
		"misfit":       {tensorops.ErrShape, "layer broken, forward"},
		"wide": {stages.ErrInput,
			"layer dense, forward of microbatch 0: unexpected tensor on an edge: it takes float32 rows of 4 numbers, but got float32[5 7]"},
		"unknown field": {stages.ErrInput, `it reads the field "nowhere"`},
		"frees": {stages.ErrInput,
			"layer broken, forward of microbatch 0: unexpected tensor on an edge: it freed float32[5 4], which it got as an input"},
		"frees what it saves":           {stages.ErrInput, "it freed float32[5 1000], which it saves"},
		"returns what it freed":         {stages.ErrInput, "output 0 is invalid or was freed"},
		"NaN":                           {stages.ErrNotFinite, "layer broken, forward of microbatch 0: output 0 has not a finite number"},
		"panics in the weight gradient": {nil, "layer broken, weight gradient of microbatch 0: panic: out of ideas"},
	} {
		t.Run(how, func(t *testing.T) {
			err := run(t, &broken{how})
			if err == nil || !strings.Contains(err.Error(), c.says) || c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("error %v, want %v that says %q", err, c.err, c.says)
			}
		})
	}
	for name, c := range map[string]struct {
		grads func(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor
		err   error
		says  string
	}{
		"none": {func(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) []tensorops.Tensor { return nil }, stages.ErrInput,
			"layer broken, input gradient of microbatch 0: unexpected tensor on an edge: it returned no gradient of input 0, float32[5 4]"},
		"shape": {func(p *stages.Pass, _, _ []tensorops.Tensor) []tensorops.Tensor {
			return []tensorops.Tensor{p.Alloc(tensorops.Float32, 4, 5)}
		}, stages.ErrInput, "it returned a gradient of float32[4 5] for input 0 of float32[5 4]"},
		"type": {func(p *stages.Pass, _, _ []tensorops.Tensor) []tensorops.Tensor {
			return []tensorops.Tensor{p.Alloc(tensorops.Float64, 5, 4)}
		}, stages.ErrInput, "it returned a gradient of float64[5 4]"},
		"too many": {func(p *stages.Pass, _, dout []tensorops.Tensor) []tensorops.Tensor {
			return []tensorops.Tensor{dout[0], dout[0]}
		}, stages.ErrInput, "it returned 2 gradients, want 1, one for each input"},
		"not a number": {func(p *stages.Pass, _, dout []tensorops.Tensor) []tensorops.Tensor {
			g := p.AllocLike(dout[0])
			p.Fill(g, math.Inf(1))
			return []tensorops.Tensor{g}
		}, stages.ErrNotFinite, "layer broken, input gradient of microbatch 0: gradient of input 0 has not a finite number"},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(t, &badGrad{grads: c.grads})
			if err == nil || !strings.Contains(err.Error(), c.says) || !errors.Is(err, c.err) {
				t.Errorf("error %v, want %v that says %q", err, c.err, c.says)
			}
		})
	}
}
