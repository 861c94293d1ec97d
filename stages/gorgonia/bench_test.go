package gorgonia

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"gonum.org/v1/gonum/blas/gonum"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

const benchLayers, benchWidth, benchRows = 8, 1024, 64

// products are the floating-point operations of a microbatch's matrix products. Nobody asks
// for the gradient of the first layer's input.
const products = (3*benchLayers - 1) * 2 * benchWidth * benchWidth * benchRows

func report(b *testing.B, microbatches int) {
	b.ReportMetric(float64(products*microbatches)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
	b.ReportMetric(float64(benchRows*microbatches)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// plain is a program with Gorgonia alone: forward and backward of one microbatch by a
// machine.
func plain(b *testing.B) func() error {
	declared, weights := mlpWeights(benchLayers, benchWidth)
	batch := newMicrobatch(1, benchRows, benchWidth)
	g := G.NewGraph()
	node := func(name string, a tensorops.Array) *G.Node {
		return G.NewMatrix(g, tensor.Float32, G.WithShape(a.Shape...), G.WithName(name), G.WithValue(tensor.New(tensor.WithShape(a.Shape...), tensor.WithBacking(a.Float))))
	}
	x, dy := node("x", batch.in[0]), node("dy", batch.dout[0])
	var wrt G.Nodes
	for i, w := range weights {
		wrt = append(wrt, node(declared[i].name, w))
	}
	out, err := mlp(benchLayers)(g, []*G.Node{x}, wrt)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := G.Backpropagate(G.Nodes{out[0]}, G.Nodes{dy}, wrt); err != nil {
		b.Fatal(err)
	}
	machine := G.NewTapeMachine(g)
	return func() error {
		machine.Reset()
		return machine.RunAll()
	}
}

// BenchmarkMLP is forward and backward of an MLP on one core: by Gorgonia's machine with
// its own BLAS and with the engine's, and as a layer's graphs with 1 and 8 microbatches in
// flight.
func BenchmarkMLP(b *testing.B) {
	UseEngineBLAS()
	for _, c := range []struct {
		name string
		blas G.BLAS
	}{{"plain, gonum", gonum.Implementation{}}, {"plain, engine", engineBLAS{}}} {
		b.Run(c.name, func(b *testing.B) {
			G.Use(c.blas)
			defer G.Use(engineBLAS{})
			step := plain(b)
			for b.Loop() {
				if err := step(); err != nil {
					b.Fatal(err)
				}
			}
			report(b, 1)
		})
	}
	for _, flight := range []int{1, 8} {
		b.Run(fmt.Sprintf("graphs, %d in flight", flight), func(b *testing.B) {
			declared, weights := mlpWeights(benchLayers, benchWidth)
			m := newModel(mlp(benchLayers), declared, tensor.Float32)
			batch := newMicrobatch(1, benchRows, benchWidth)
			din, dweights := make([]tensorops.Array, 1), zeros(weights)
			run := func(n int) {
				xs := make([]*instance, n)
				for i := range xs {
					x, err := m.take([]input{{tensorops.Float32, batch.in[0].Shape, false}})
					if err != nil {
						b.Fatal(err)
					}
					if _, err := x.forward(batch.in, weights); err != nil {
						b.Fatal(err)
					}
					xs[i] = x
				}
				for _, x := range xs {
					if err := m.backward(x, batch.dout, din, dweights); err != nil {
						b.Fatal(err)
					}
					m.give(x)
				}
			}
			run(flight)
			for b.Loop() {
				run(flight)
			}
			report(b, flight)
		})
	}
}

// BenchmarkPipeline is the same work as a pipeline of stages, each on a core, with 1F1B: a
// step of microbatches, and no update.
func BenchmarkPipeline(b *testing.B) {
	const microbatches = 16
	half := func(layers int) *Layer {
		declared, _ := mlpWeights(layers, benchWidth)
		spec := Spec{Build: mlp(layers)}
		for _, w := range declared {
			spec.Params = append(spec.Params, stages.LayerParam{Name: w.name, Shape: w.shape, Init: stages.Init{Std: 0.03}})
		}
		return New(spec)
	}
	for _, count := range []int{1, 2} {
		b.Run(fmt.Sprintf("%d stages", count), func(b *testing.B) {
			name := fmt.Sprintf("bench-gorgonia-%d", count)
			if !slices.Contains(stages.Families(), name) {
				stages.RegisterFamily(name, func(g *stages.Graph, _ stages.Config) error {
					x := []stages.Value{g.Input("x")}
					for i := range count {
						x = g.Add(fmt.Sprintf("part%d", i), half(benchLayers/count), x...)
					}
					g.Loss("loss", stages.NewMSE("y"), x...)
					return nil
				})
			}
			field := func(name string) stages.Field { return stages.Field{Name: name, Shape: []int{benchWidth}} }
			m, err := stages.NewModel(stages.Config{Family: name, Fields: []stages.Field{field("x"), field("y")}})
			if err != nil {
				b.Fatal(err)
			}
			dev, err := cpu.New(cpu.Options{Threads: count})
			if err != nil {
				b.Fatal(err)
			}
			defer dev.Close()
			run := newLine(b, dev, m, count, microbatches)
			run()
			for b.Loop() {
				run()
			}
			report(b, microbatches)
		})
	}
}

// newLine makes stages of a model, and what runs a step of theirs.
func newLine(b *testing.B, dev *cpu.Device, m *stages.Model, count, microbatches int) func() {
	n := len(m.Symbols())
	line := make([]*stages.Stage, count)
	streams := make([]tensorops.Stream, count)
	for v := range line {
		spec := stages.ChunkSpec{Chunk: v, First: 0, Last: n}
		if v > 0 {
			spec.First = v + 1 // the input and the parts before it
		}
		if v < count-1 {
			spec.Last = v + 2
		}
		streams[v] = dev.NewStream("bench")
		st, err := stages.NewStage(m, streams[v], []stages.ChunkSpec{spec}, stages.Options{Seed: 1})
		if err != nil {
			b.Fatal(err)
		}
		if err := st.Load(stages.InitWeights(1), false); err != nil {
			b.Fatal(err)
		}
		line[v] = st
	}
	x, y := newMicrobatch(1, benchRows, benchWidth).in[0], newMicrobatch(2, benchRows, benchWidth).in[0]
	record := func(v int, f func(l *tensorops.List)) {
		l := streams[v].NewList()
		f(l)
		if err := tensorops.Run(streams[v], l); err != nil {
			b.Error(err)
		}
	}
	return func() {
		forward, back := make([]chan []tensorops.Tensor, count+1), make([]chan []tensorops.Tensor, count+1)
		for v := range forward {
			forward[v], back[v] = make(chan []tensorops.Tensor, microbatches), make(chan []tensorops.Tensor, microbatches)
		}
		var wg sync.WaitGroup
		for v, st := range line {
			wg.Go(func() {
				f := func(i int) {
					mb := stages.Microbatch{Step: 1, Index: i, FirstSequence: i * benchRows, Sequences: benchRows, Positions: 1, Train: true}
					for _, name := range st.Fields(v) {
						mb.Fields = append(mb.Fields, map[string]tensorops.Array{"x": x, "y": y}[name])
					}
					var in, out []tensorops.Tensor
					if v > 0 {
						in = <-forward[v]
					}
					record(v, func(l *tensorops.List) { out = slices.Clone(st.Forward(l, v, &mb, in...)) })
					forward[v+1] <- out
				}
				ahead := count - v
				for i := range microbatches + ahead - 1 {
					if i < microbatches {
						f(i)
					}
					if done := i - ahead + 1; done >= 0 {
						var dout, din []tensorops.Tensor
						if v < count-1 {
							dout = <-back[v+1]
						}
						record(v, func(l *tensorops.List) { din = slices.Clone(st.Backward(l, v, done, dout...)) })
						back[v] <- din
					}
				}
			})
		}
		wg.Wait()
	}
}
