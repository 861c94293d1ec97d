package gorgonia

import (
	"fmt"
	"testing"

	"gonum.org/v1/gonum/blas/gonum"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/troupe-ml/troupe/tensorops"
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
		return G.NewMatrix(g, tensor.Float32, G.WithShape(a.Shape...), G.WithName(name),
			G.WithValue(tensor.New(tensor.WithShape(a.Shape...), tensor.WithBacking(a.Float))))
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
