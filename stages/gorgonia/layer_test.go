package gorgonia_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/stages/gorgonia"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// dense is tanh(x·W + b), of which a hidden layer is made.
func dense(in, out int) *gorgonia.Layer {
	return gorgonia.New(gorgonia.Spec{
		Params: []stages.LayerParam{
			{Name: "weight", Shape: []int{in, out}, Init: stages.Init{Std: 1 / math.Sqrt(float64(in))}},
			{Name: "bias", Shape: []int{1, out}, Init: stages.Init{Const: 0.1}},
		},
		Build: func(_ *G.ExprGraph, in, p []*G.Node) ([]*G.Node, error) {
			z, err := G.Mul(in[0], p[0])
			if err != nil {
				return nil, err
			}
			if z, err = G.BroadcastAdd(z, p[1], nil, []byte{0}); err != nil {
				return nil, err
			}
			z, err = G.Tanh(z)
			return []*G.Node{z}, err
		},
	})
}

// halves has two outputs, one of them its input doubled, and takes a field.
func halves() *gorgonia.Layer {
	return gorgonia.New(gorgonia.Spec{Outputs: 2, Fields: []string{"z"}, Build: func(_ *G.ExprGraph, in, _ []*G.Node) ([]*G.Node, error) {
		return []*G.Node{G.Must(G.Add(in[0], in[0])), G.Must(G.HadamardProd(G.Must(G.Square(in[0])), in[1]))}, nil
	}})
}

func init() {
	stages.RegisterFamily("test-gorgonia", func(g *stages.Graph, _ stages.Config) error {
		x := g.Input("x")
		a := g.Add("a", dense(4, 8), x)
		b := g.Add("b", dense(8, 8), a...)
		h := g.Add("h", halves(), b...)
		own := g.Add("own", stages.NewDense(8, 8, "gelu", 0), h[0])
		c := g.Add("c", dense(8, 8), own...)
		both := g.Add("both", gorgonia.New(gorgonia.Spec{Build: func(_ *G.ExprGraph, in, _ []*G.Node) ([]*G.Node, error) {
			y, err := G.Concat(1, in...)
			return []*G.Node{y}, err
		}}), c[0], h[1], a[0])
		out := g.Add("out", stages.NewDense(24, 3, "", 0), both...)
		g.Loss("loss", stages.NewCrossEntropy("y", 3), out...)
		return nil
	})
	for _, kind := range []string{"own", "gorgonia"} {
		stages.RegisterFamily("test-loss-"+kind, func(g *stages.Graph, _ stages.Config) error {
			h := g.Add("h", dense(4, 8), g.Input("x"))
			if kind == "own" {
				g.Loss("loss", stages.NewMSE("z"), h...)
				return nil
			}
			g.Loss("loss", gorgonia.NewLoss(gorgonia.Spec{Fields: []string{"z"}, Build: func(_ *G.ExprGraph, in, _ []*G.Node) ([]*G.Node, error) {
				d := G.Must(G.Sub(in[0], in[1]))
				sum := G.Must(G.Sum(G.Must(G.Square(d))))
				return []*G.Node{G.Must(G.Mul(sum, G.NewConstant(float32(0.125)))), G.Must(G.Sum(G.Must(G.Abs(d))))}, nil
			}}, "distance"), h...)
			return nil
		})
	}
	stages.RegisterFamily("test-gorgonia-refused", func(g *stages.Graph, _ stages.Config) error {
		bad := g.Add("bad", gorgonia.New(gorgonia.Spec{Build: func(_ *G.ExprGraph, in, _ []*G.Node) ([]*G.Node, error) {
			y, err := G.InverseSqrt(in[0])
			return []*G.Node{y}, err
		}}), g.Add("first", stages.NewDense(4, 3, "", 0), g.Input("x"))...)
		g.Loss("loss", stages.NewCrossEntropy("y", 3), bad...)
		return nil
	})
}

var fields = []stages.Field{{Name: "x", Shape: []int{4}}, {Name: "z", Shape: []int{8}}, {Name: "y", DType: tensorops.Int32, Classes: 3}}

// pipe is a model cut into chunks, each on a stage of its own.
type pipe struct {
	t      testing.TB
	routes []stages.Route
	stages []*stages.Stage
	stream []tensorops.Stream
}

func newPipe(t testing.TB, dev tensorops.Device, m *stages.Model, cuts ...int) *pipe {
	t.Helper()
	var specs []stages.ChunkSpec
	from := 0
	for i, to := range append(cuts[:len(cuts):len(cuts)], len(m.Symbols())) {
		specs = append(specs, stages.ChunkSpec{Chunk: i, First: from, Last: to})
		from = to
	}
	p := &pipe{t: t, routes: m.Routes(specs)}
	for _, spec := range specs {
		s := dev.NewStream(fmt.Sprintf("chunk %d", spec.Chunk))
		st, err := stages.NewStage(m, s, []stages.ChunkSpec{spec}, stages.Options{Seed: 5})
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

func (p *pipe) run(v int, record func(l *tensorops.List)) error {
	l := p.stream[v].NewList()
	record(l)
	return tensorops.Run(p.stream[v], l)
}

func batch(index int) (stages.Microbatch, map[string]tensorops.Array) {
	samples := 4 + index%2 // shapes differ
	r := rand.New(rand.NewPCG(uint64(index), 1))
	x, z, y := tensorops.NewArray(tensorops.Float32, []int{samples, 4}), tensorops.NewArray(tensorops.Float32, []int{samples, 8}),
		tensorops.NewArray(tensorops.Int32, []int{samples})
	for i := range x.Float {
		x.Float[i] = float32(r.NormFloat64())
	}
	for i := range z.Float {
		z.Float[i] = float32(r.NormFloat64())
	}
	for i := range y.Int {
		y.Int[i] = int32(r.IntN(3))
	}
	return stages.Microbatch{Step: 1, Index: index, FirstSequence: index * 5, Sequences: samples, Positions: 1, Train: true},
		map[string]tensorops.Array{"x": x, "z": z, "y": y}
}

// step takes microbatches forward, and back whole or in two passes, and returns the loss and all gradients.
func (p *pipe) step(count int, split, recompute bool) (loss float64, grads map[string][]float32, err error) {
	acc := stages.NewAccumulator()
	for index := range count {
		mb, data := batch(index)
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
				return 0, nil, err
			}
			for i, to := range p.routes[v].Outs {
				inbox[to.Chunk][to.Slot] = out[i]
			}
		}
		last := len(p.stages) - 1
		if err := acc.Add(index, p.stages[last].Report(last, index)); err != nil {
			return 0, nil, err
		}
	}
	for index := range count {
		dout := make([][]tensorops.Tensor, len(p.stages))
		for v := range p.stages {
			dout[v] = make([]tensorops.Tensor, len(p.routes[v].GradOuts))
		}
		for v := len(p.stages) - 1; v >= 0; v-- {
			var out []tensorops.Tensor
			back := func(l *tensorops.List) { out = p.stages[v].Backward(l, v, index, dout[v]...) }
			if split {
				back = func(l *tensorops.List) { out = p.stages[v].InputGrad(l, v, index, dout[v]...) }
			}
			if err := p.run(v, back); err != nil {
				return 0, nil, err
			}
			if split {
				if err := p.run(v, func(l *tensorops.List) { p.stages[v].WeightGrad(l, v, index) }); err != nil {
					return 0, nil, err
				}
			}
			for i, to := range p.routes[v].GradIns {
				dout[to.Chunk][to.Slot] = out[i]
			}
		}
	}
	grads = make(map[string][]float32)
	for v, s := range p.stages {
		var saved []stages.Saved
		if err := p.run(v, func(l *tensorops.List) { saved = s.Grads(l) }); err != nil {
			return 0, nil, err
		}
		for _, g := range saved {
			grads[g.Name] = g.Data
		}
	}
	return acc.Loss(), grads, nil
}

func device(t testing.TB) *cpu.Device {
	t.Helper()
	dev, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Close)
	return dev
}

// TestStages: wherever the model is cut, with eight microbatches in flight, losses and
// gradients have the same bits, and nothing is left of a microbatch.
func TestStages(t *testing.T) {
	m, err := stages.NewModel(stages.Config{Family: "test-gorgonia", Fields: fields})
	if err != nil {
		t.Fatal(err)
	}
	var wantLoss float64
	var want map[string][]float32
	for _, cuts := range [][]int{nil, {2}, {1, 4, 6}, {3, 5}, {1, 2, 3, 4, 5, 6, 7, 8}} {
		for _, how := range []struct{ split, recompute bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
			dev := device(t)
			p := newPipe(t, dev, m, cuts...)
			before := dev.Memory().InUse
			loss, grads, err := p.step(8, how.split, how.recompute)
			if err != nil {
				t.Fatal(err)
			}
			if got := dev.Memory().InUse; got != before {
				t.Errorf("cuts %v: %d bytes in use after a step, %d before", cuts, got, before)
			}
			if want == nil {
				wantLoss, want = loss, grads
				if !(loss > 0.5 && loss < 5) || len(grads) != len(m.Params) {
					t.Fatalf("loss %g, %d gradients of %d", loss, len(grads), len(m.Params))
				}
			}
			if math.Float64bits(loss) != math.Float64bits(wantLoss) {
				t.Errorf("cuts %v, %+v: loss %v, want %v", cuts, how, loss, wantLoss)
			}
			for name, g := range grads {
				for i, v := range g {
					if math.Float32bits(v) != math.Float32bits(want[name][i]) {
						t.Errorf("cuts %v, %+v: the gradient of %s differs: %v, want %v", cuts, how, name, v, want[name][i])
						break
					}
				}
			}
		}
	}
}

// TestLoss: a loss that is a graph has the loss and the gradients of the built-in one.
func TestLoss(t *testing.T) {
	var losses []float64
	var grads []map[string][]float32
	for _, kind := range []string{"own", "gorgonia"} {
		m, err := stages.NewModel(stages.Config{Family: "test-loss-" + kind, Fields: fields})
		if err != nil {
			t.Fatal(err)
		}
		p := newPipe(t, device(t), m)
		loss, g, err := p.step(3, false, false)
		if err != nil {
			t.Fatal(err)
		}
		losses, grads = append(losses, loss), append(grads, g)
	}
	// The built-in one's targets are numbers, the graph's samples.
	if d := losses[0] - losses[1]; math.Abs(d) > 1e-5*losses[0] {
		t.Errorf("loss %g, want %g", losses[1], losses[0])
	}
	for name, g := range grads[0] {
		for i, v := range g {
			if d := float64(v - 8*grads[1][name][i]); math.Abs(d) > 1e-4*(1+math.Abs(float64(v))) {
				t.Errorf("the gradient of %s at %d is %g, an eighth of %g is expected", name, i, grads[1][name][i], v)
				break
			}
		}
	}
}

// TestStagesRefuse: a refusal names the layer and the reason.
func TestStagesRefuse(t *testing.T) {
	m, err := stages.NewModel(stages.Config{Family: "test-gorgonia-refused", Fields: fields})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = newPipe(t, device(t), m).step(1, false, false)
	var layer *stages.LayerError
	if !errors.Is(err, gorgonia.ErrRefused) || !errors.As(err, &layer) || layer.Layer != "bad" ||
		!strings.Contains(err.Error(), "use Inverse of Sqrt") {
		t.Errorf("%v", err)
	}
}

// TestCheck builds a graph ahead.
func TestCheck(t *testing.T) {
	out, err := dense(4, 8).Check(tensorops.Array{Shape: []int{3, 4}})
	if err != nil || fmt.Sprint(out) != "[[3 8]]" {
		t.Errorf("outputs %v, %v", out, err)
	}
	if _, err := dense(4, 8).Check(tensorops.Array{Shape: []int{3, 5}}); !errors.Is(err, gorgonia.ErrGraph) {
		t.Errorf("an input that doesn't fit: %v", err)
	}
}
