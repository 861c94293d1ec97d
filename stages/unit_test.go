package stages_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// odd is a layer that does what its functions say.
type odd struct {
	params   []stages.LayerParam
	outs     int
	forward  func(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor
	backward func(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor
	weights  func(p *stages.Pass, in, dout []tensorops.Tensor)
}

func (l *odd) Params() []stages.LayerParam { return l.params }
func (l *odd) Outputs() int                { return max(l.outs, 1) }

func (l *odd) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	if l.forward != nil {
		return l.forward(p, in)
	}
	return in[:1]
}

func (l *odd) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	if l.backward != nil {
		return l.backward(p, in, dout)
	}
	return dout[:1]
}

func (l *odd) WeightGrad(p *stages.Pass, in, dout []tensorops.Tensor) {
	if l.weights != nil {
		l.weights(p, in, dout)
	}
}

// oddModel has such a layer between two dense ones; it also takes the raw input.
func oddModel(t *testing.T, l stages.Layer, data bool) *stages.Model {
	t.Helper()
	m, err := stages.Build(stages.Config{Fields: branchFields}, func(g *stages.Graph, c stages.Config) error {
		x := g.Input("x")
		a := g.Add("a", stages.NewDense(4, 4, "gelu", 0), x)[0]
		in := []stages.Value{a}
		if data {
			in = []stages.Value{x, a}
		}
		b := g.Add("odd", l, in...)
		g.Loss("loss", stages.NewCrossEntropy("y", 3), g.Add("out", stages.NewDense(4, 3, "", 0), b[0])...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func oddStep(t *testing.T, m *stages.Model, cut []int, split, recompute bool) error {
	t.Helper()
	dev, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	p := newGraphPipe(t, dev, m, cut)
	for range 2 {
		before := dev.Memory().InUse
		if _, err := p.passes(3, split, recompute, graphBatch); err != nil {
			return err
		}
		if got := dev.Memory().InUse; got != before {
			return fmt.Errorf("%d bytes are in use after a step, %d before", got, before)
		}
	}
	return nil
}

// TestOwnership: whatever a layer returns of what it was given or keeps, each buffer is freed
// once.
func TestOwnership(t *testing.T) {
	double := func(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
		dx := p.AllocLike(in[0])
		p.Copy(dx, dout[0])
		return []tensorops.Tensor{dx, dx}
	}
	for _, c := range []struct {
		name string
		l    *odd
		data bool
	}{
		{"one gradient for two inputs", &odd{backward: double}, true},
		{"two gradients, one asked for", &odd{backward: func(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
			return []tensorops.Tensor{p.AllocLike(in[0]), dout[0]}
		}}, true},
		{"saves a gradient that nobody asked for", &odd{backward: func(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
			dx := p.AllocLike(in[0])
			p.Copy(dx, dout[0])
			p.Save(0, dx)
			return []tensorops.Tensor{dx, dout[0]}
		}, weights: func(p *stages.Pass, in, dout []tensorops.Tensor) {
			t := p.AllocLike(p.Saved(0))
			p.Add(t, t, p.Saved(0))
			p.Free(t)
		}}, true},
		{"saves twice", &odd{forward: func(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
			p.Save(0, p.AllocLike(in[0]))
			p.Save(0, p.AllocLike(in[0]))
			return in[:1]
		}}, false},
		{"saves its weight", &odd{params: []stages.LayerParam{{Name: "w", Shape: []int{5, 4}}},
			forward: func(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
				p.Save(0, p.Weight(0))
				return in[:1]
			}}, false},
		{"returns its weight", &odd{params: []stages.LayerParam{{Name: "w", Shape: []int{5, 4}}},
			forward: func(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
				return []tensorops.Tensor{p.Weight(0)}
			}}, false},
		{"returns its weight as gradient", &odd{params: []stages.LayerParam{{Name: "w", Shape: []int{5, 4}}},
			backward: func(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
				return []tensorops.Tensor{p.Weight(0)}
			}}, false},
		{"halves of a tensor", &odd{forward: func(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
			wide := p.Alloc(tensorops.Float32, in[0].Rows(), 8)
			p.Copy(wide.Columns(4, 8), in[0])
			return []tensorops.Tensor{wide.Columns(4, 8)}
		}, backward: func(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
			wide := p.Alloc(tensorops.Float32, in[0].Rows(), 8)
			p.Copy(wide.Columns(0, 4), dout[0])
			return []tensorops.Tensor{wide.Columns(0, 4)}
		}}, false},
		{"a field as a gradient", &odd{backward: func(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
			return []tensorops.Tensor{in[0], in[0]}
		}}, true},
	} {
		for _, cut := range [][]int{nil, {1, 2, 3, 4}, {2, 2, 3, 3}} {
			for how := range 4 {
				t.Run(fmt.Sprint(c.name, cut, how), func(t *testing.T) {
					if err := oddStep(t, oddModel(t, c.l, c.data), cut, how&1 > 0, how&2 > 0); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// opener is a layer that is opened as a function says.
type opener struct {
	odd
	open func() (stages.OpenLayer, error)
}

func (l *opener) Open() (stages.OpenLayer, error) { return l.open() }

type opened struct {
	odd
	closed *int
	panics bool
}

func (l *opened) Close() error {
	*l.closed++
	if l.panics {
		panic("the closing panics")
	}
	return nil
}

// TestOpen: what a layer opens is closed, whatever the next one does; and a panic is an error.
func TestOpen(t *testing.T) {
	for _, c := range []struct {
		open        func() (stages.OpenLayer, error)
		first, want string // of the first layer's closing, and of opening
	}{
		{func() (stages.OpenLayer, error) { panic("too late") }, "", "open layer second: panic: too late"},
		{func() (stages.OpenLayer, error) { return nil, nil }, "",
			"open layer second: impossible model: Open returned neither a layer nor an error"},
		{func() (stages.OpenLayer, error) { return nil, errors.New("no room") }, "close layer first: panic: the closing panics",
			"open layer second: no room"},
	} {
		closed := 0
		m, err := stages.Build(stages.Config{Fields: branchFields}, func(g *stages.Graph, _ stages.Config) error {
			x := g.Add("first", &opener{open: func() (stages.OpenLayer, error) {
				return &opened{closed: &closed, panics: c.first != ""}, nil
			}}, g.Input("x"))
			g.Loss("loss", stages.NewCrossEntropy("y", 4), g.Add("second", &opener{open: c.open}, x...)...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Shapes(2)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.first) || closed != 1 {
			t.Errorf("%v, closed %d times; want %q, %q", err, closed, c.want, c.first)
		}
	}
}

// TestLossGrads: a LossFunc finds the gradient of a value in its value's place, also where the
// one before has none.
func TestLossGrads(t *testing.T) {
	m, err := stages.Build(stages.Config{Fields: branchFields}, func(g *stages.Graph, _ stages.Config) error {
		x := g.Input("x")
		a := g.Add("a", stages.NewDense(4, 4, "", 0), x)[0]
		g.Loss("loss", stages.NewLoss("sum", 2, nil, func(values, _, grads []tensorops.Array) (r stages.Report, err error) {
			if len(grads) != 0 && len(grads) != len(values) {
				return r, fmt.Errorf("%d gradients for %d values", len(grads), len(values))
			}
			for k, g := range grads {
				for i := range g.Float {
					g.Float[i] = float32(k)
				}
			}
			return stages.Report{Targets: 1}, nil
		}), x, a)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	dev := newDevice(t, 1)
	p := newGraphPipe(t, dev, m, nil)
	before := dev.Memory().InUse
	if _, err := p.passes(1, false, false, graphBatch); err != nil {
		t.Fatal(err)
	}
	if got := dev.Memory().InUse; got != before {
		t.Errorf("%d bytes are in use after a step, %d before", got, before)
	}
	for i, v := range p.grads()["a.bias"] {
		if v != 5 { // samples
			t.Errorf("the gradient of bias %d is %g, want 5", i, v)
		}
	}
}

// TestTargetsOfParts: the number of targets is added by microbatch, so that weights that are no
// whole numbers give the same bits each time.
func TestTargetsOfParts(t *testing.T) {
	want := 0.0
	for try := range 100 {
		a := stages.NewAccumulator()
		for i := range 32 {
			if err := a.Add((i*7+try)%32, stages.Report{Targets: 1 / float64((i*7+try)%32+3)}); err != nil {
				t.Fatal(err)
			}
		}
		if try == 0 {
			want = a.Targets()
		}
		if got := a.Targets(); got != want {
			t.Fatalf("%v targets, want %v", got, want)
		}
	}
}

// TestAbortGraph: microbatches of a graph that are aborted leave nothing, and the same
// numbers come of them when they begin anew.
func TestAbortGraph(t *testing.T) {
	m, err := stages.NewModel(stages.Config{Family: "test-branches", Fields: branchFields})
	if err != nil {
		t.Fatal(err)
	}
	for _, recompute := range []bool{false, true} {
		for _, cut := range []int{3, 8, len(m.Symbols())} {
			dev := newDevice(t, 1)
			p := newGraphPipe(t, dev, m, []int{cut}[:min(1, len(m.Symbols())-cut)])
			want, err := p.passes(3, true, recompute, graphBatch)
			if err != nil {
				t.Fatal(err)
			}
			before := dev.Memory().InUse
			for index := range 3 {
				mb, data := graphBatch(index)
				mb.Recompute = recompute
				for _, name := range p.stages[0].Fields(0) {
					mb.Fields = append(mb.Fields, data[name])
				}
				if err := p.run(0, func(l *tensorops.List) {
					for _, x := range p.stages[0].Forward(l, 0, &mb) {
						l.Free(x)
					}
				}); err != nil {
					t.Fatal(err)
				}
			}
			if cut == len(m.Symbols()) {
				if err := p.run(0, func(l *tensorops.List) { p.stages[0].InputGrad(l, 0, 1) }); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.run(0, p.stages[0].AbortMicrobatches); err != nil {
				t.Fatal(err)
			}
			if got := dev.Memory().InUse; got != before || p.stages[0].InFlight() != 0 {
				t.Errorf("cut at %d, recompute %v: %d bytes are in use after an abort, %d before", cut, recompute, got, before)
			}
			if got, err := p.passes(3, true, recompute, graphBatch); err != nil || got != want {
				t.Errorf("cut at %d, recompute %v: loss %v after an abort, %v; want %v", cut, recompute, got, err, want)
			}
		}
	}
}

// noGrad is odd with a second output that no gradient goes back through.
type noGrad struct{ odd }

func (*noGrad) NoGrad(out int) bool { return out == 1 }

// TestTwice: outputs that are one tensor, that nobody takes, or that have no gradient; and
// inputs that are one value.
func TestTwice(t *testing.T) {
	twice := func(_ *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
		return []tensorops.Tensor{in[0], in[0]}
	}
	fresh := func(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
		y := p.AllocLike(in[0])
		p.Copy(y, in[0])
		p.Save(3, y)
		return []tensorops.Tensor{y, y.View(y.Len()/4, 4)}
	}
	sum := func(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
		dx := p.AllocLike(in[0])
		p.Add(dx, dout[0], dout[1])
		return []tensorops.Tensor{dx}
	}
	for i, l := range []stages.Layer{
		&odd{outs: 2, forward: twice, backward: sum},
		&odd{outs: 2, forward: fresh, backward: sum},
		&noGrad{odd{outs: 2, forward: twice, backward: sum}},
		&noGrad{odd{outs: 2, forward: fresh, backward: sum}},
	} {
		m, err := stages.Build(stages.Config{Fields: branchFields}, func(g *stages.Graph, _ stages.Config) error {
			a := g.Add("a", stages.NewDense(4, 4, "gelu", 0), g.Input("x"))[0]
			two := g.Add("two", l, a)
			b := g.Add("b", &adder{}, two[0], two[1], two[0], a)[0]
			last := g.Add("three", &odd{outs: 2, forward: fresh, backward: sum}, b)
			g.Output("unused", last[1])
			c := g.Add("c", &adder{}, last[0], two[1], a)[0]
			g.Loss("loss", stages.NewCrossEntropy("y", 3), g.Add("out", stages.NewDense(4, 3, "", 0), c)...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, cut := range [][]int{nil, {1, 2, 3, 4, 5, 6, 7}, {3, 3, 5}, {0, 2, 4}} {
			for how := range 4 {
				if err := oddStep(t, m, cut, how&1 > 0, how&2 > 0); err != nil {
					t.Errorf("layer %d, cuts %v, %d: %v", i, cut, how, err)
				}
			}
		}
	}
}

// TestFreesOthers: a layer that frees what is not its own is told so, also where the memory
// goes to what it allocates next.
func TestFreesOthers(t *testing.T) {
	again := func(p *stages.Pass, t tensorops.Tensor) []tensorops.Tensor {
		y := p.AllocLike(t)
		p.Fill(y, 0)
		return []tensorops.Tensor{y}
	}
	weight := []stages.LayerParam{{Name: "w", Shape: []int{5, 4}}}
	for want, l := range map[string]*odd{
		"forward of microbatch 0: unexpected tensor on an edge: it freed float32[5 4], which it got as an input": {forward: func(p *stages.Pass,
			in []tensorops.Tensor) []tensorops.Tensor {
			p.Free(in[0])
			return again(p, in[0])
		}},
		"input gradient of microbatch 0: unexpected tensor on an edge: it freed float32[5 4], which it got as a gradient": {backward: func(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
			p.Free(dout[0])
			return again(p, in[0])
		}},
		"it freed float32[5 4], which it saves": {forward: func(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
			y := again(p, in[0])
			p.Save(0, y[0])
			p.Free(y[0])
			return again(p, in[0])
		}},
		"it freed float32[5 4], which it has as parameter odd.w": {params: weight,
			forward: func(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
				p.Free(p.Weight(0))
				return again(p, in[0])
			}},
		"it freed its parameter \"odd.w\"": {params: weight, forward: func(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
			p.List.Free(p.Weight(0))
			return in[:1]
		}},
	} {
		err := oddStep(t, oddModel(t, l, false), nil, false, false)
		if _, is := errors.AsType[*stages.LayerError](err); !is || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	l := &odd{forward: func(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
		x := p.AllocLike(in[0])
		p.Save(0, x)
		p.Save(0, in[0])
		p.Free(x) // it is its own again
		return again(p, in[0])
	}}
	if err := oddStep(t, oddModel(t, l, false), nil, true, true); err != nil {
		t.Error(err)
	}
}

// TestHalfOutputs: an output in bfloat16 is looked at and collected as one in float32 is.
func TestHalfOutputs(t *testing.T) {
	for _, value := range []float64{1.5, math.NaN()} {
		m, err := stages.Build(stages.Config{Fields: branchFields}, func(g *stages.Graph, c stages.Config) error {
			half := g.Add("half", &odd{forward: func(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
				y := p.Alloc(tensorops.BFloat16, in[0].Shape()...)
				p.Fill(y, value)
				return []tensorops.Tensor{y}
			}}, g.Input("x"))[0]
			g.Output("half", half)
			wide := g.Add("wide", &odd{forward: func(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
				y := p.Alloc(tensorops.Float32, in[0].Shape()...)
				p.Fill(y, 1)
				return []tensorops.Tensor{y}
			}}, half)
			g.Loss("loss", stages.NewCrossEntropy("y", 3), g.Add("out", stages.NewDense(4, 3, "", 0), wide...)...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		dev, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(dev.Close)
		p := newGraphPipe(t, dev, m, nil)
		mb, data := graphBatch(0)
		mb.Train, mb.Collect = false, true
		for _, name := range p.stages[0].Fields(0) {
			mb.Fields = append(mb.Fields, data[name])
		}
		err = p.run(0, func(l *tensorops.List) { p.stages[0].Forward(l, 0, &mb) })
		if math.IsNaN(value) {
			if !errors.Is(err, stages.ErrNotFinite) || !strings.Contains(err.Error(), "layer half") {
				t.Errorf("error %v, want one that says that layer half has not a finite number", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if o := p.stages[0].Outputs(0, 0); len(o) == 0 || o[0].Name != "half" || len(o[0].Float) != 5*4 || o[0].Float[7] != float32(value) {
			t.Errorf("collected %v", o)
		}
		p.stages[0].Finish(0, 0)
	}
}
