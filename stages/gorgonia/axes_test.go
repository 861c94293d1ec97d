package gorgonia

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func subsets(n int) (all [][]int) {
	for m := 1; m < 1<<n; m++ {
		var s []int
		for i := range n {
			if m>>i&1 == 1 {
				s = append(s, i)
			}
		}
		all = append(all, s)
	}
	return all
}

// TestAxes goes through the axes of reductions, broadcasts, slices and the like: each is
// right, or refused, or fails when the graph is built.
func TestAxes(t *testing.T) {
	var cases []opCase
	for _, shape := range [][]int{{5}, {3, 4}, {2, 3, 4}, {2, 3, 4, 5}, {2, 3, 1, 3, 2}, {2, 2, 3, 3, 2}} {
		d := len(shape)
		for _, axes := range subsets(d) {
			cases = append(cases,
				opCase{name: fmt.Sprint("Sum ", shape, axes), shapes: [][]int{shape}, lo: -2, hi: 2,
					build: func(in []*G.Node) (*G.Node, error) { return G.Sum(in[0], axes...) }, value: sumValue(axes...)},
				opCase{name: fmt.Sprint("Mean ", shape, axes), shapes: [][]int{shape}, lo: -2, hi: 2,
					build: func(in []*G.Node) (*G.Node, error) { return G.Mean(in[0], axes...) }, value: meanValue(axes...)},
				opCase{name: fmt.Sprint("Max ", shape, axes), shapes: [][]int{shape}, lo: -2, hi: 2,
					build: func(in []*G.Node) (*G.Node, error) { return G.Max(in[0], axes...) }, value: maxValue(axes...)},
			)
			small := append([]int(nil), shape...)
			var pattern []byte
			for _, a := range axes {
				small[a] = 1
				pattern = append(pattern, byte(a))
			}
			for name, f := range map[string]struct {
				build func(a, b *G.Node, l, r []byte) (*G.Node, error)
				value func(a, b float64) float64
			}{
				"Add":  {G.BroadcastAdd, func(a, b float64) float64 { return a + b }},
				"Sub":  {G.BroadcastSub, func(a, b float64) float64 { return a - b }},
				"Prod": {G.BroadcastHadamardProd, func(a, b float64) float64 { return a * b }},
			} {
				cases = append(cases,
					opCase{name: fmt.Sprint("Broadcast", name, shape, small), shapes: [][]int{shape, small}, lo: -2, hi: 2,
						build: broadcast(f.build, nil, pattern), value: broadcastValue(f.value)},
					opCase{name: fmt.Sprint("Broadcast", name, small, shape), shapes: [][]int{small, shape}, lo: -2, hi: 2,
						build: broadcast(f.build, pattern, nil), value: broadcastValue(f.value)})
			}
		}
		for a := range d {
			cases = append(cases,
				opCase{name: fmt.Sprint("SoftMax ", shape, a), shapes: [][]int{shape}, lo: -2, hi: 2,
					build: func(in []*G.Node) (*G.Node, error) { return G.SoftMax(in[0], a) }, value: softmaxValue(a, false)},
				opCase{name: fmt.Sprint("LogSoftMax ", shape, a), shapes: [][]int{shape}, lo: -2, hi: 2,
					build: func(in []*G.Node) (*G.Node, error) { return G.LogSoftMax(in[0], a) }, value: softmaxValue(a, true)},
				opCase{name: fmt.Sprint("Sparsemax ", shape, a), shapes: [][]int{shape}, lo: -2, hi: 2,
					build: func(in []*G.Node) (*G.Node, error) { return G.Sparsemax(in[0], a) }},
				opCase{name: fmt.Sprint("Concat ", shape, a), shapes: [][]int{shape, shape}, lo: -2, hi: 2,
					build: func(in []*G.Node) (*G.Node, error) { return G.Concat(a, in...) }, value: concatValue(shape, a)},
				opCase{name: fmt.Sprint("Norm2 ", shape, a), shapes: [][]int{shape}, lo: -2, hi: 2,
					build: func(in []*G.Node) (*G.Node, error) { return G.Norm(in[0], a, 2) }},
				opCase{name: fmt.Sprint("ByIndices ", shape, a), shapes: [][]int{shape, {4}}, index: 2, lo: -2, hi: 2,
					build: func(in []*G.Node) (*G.Node, error) { return G.ByIndices(in[0], in[1], a) }, value: indicesValue(shape, a, 4)},
			)
			for _, s := range []tensor.Slice{G.S(0), G.S(1), G.S(0, 1), G.S(1, 2), G.S(0, 2), G.S(0, shape[a], 2), G.S(1, shape[a])} {
				cases = append(cases, opCase{name: fmt.Sprint("Slice ", shape, a, s), shapes: [][]int{shape}, lo: -2, hi: 2,
					build: func(in []*G.Node) (*G.Node, error) {
						ss := make([]tensor.Slice, a+1)
						ss[a] = s
						return G.Slice(in[0], ss...)
					}, value: sliceValue(shape, a, s)})
			}
		}
	}
	for _, p := range [][]int{{1, 0}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}, {0, 1, 3, 2}, {0, 2, 1, 3}, {0, 3, 1, 2},
		{0, 2, 3, 1}, {3, 2, 1, 0}, {1, 2, 3, 0}, {2, 3, 0, 1}} {
		shape := []int{2, 3, 4, 5}[:len(p)]
		cases = append(cases, opCase{name: fmt.Sprint("Transpose ", p), shapes: [][]int{shape}, lo: -2, hi: 2,
			build: func(in []*G.Node) (*G.Node, error) { return G.Transpose(in[0], p...) }, value: transposeValue(shape, p)})
	}
	for _, c := range cases {
		// What fails when it is built fails loudly.
		if err := checkOp(c, tensor.Float64); err != nil && !errors.Is(err, ErrRefused) && !strings.Contains(err.Error(), "Build failed") &&
			!strings.Contains(err.Error(), "the gradient of Max") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
