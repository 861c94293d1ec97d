// Command gorgonia-mlp is engine with a family of models whose layers are Gorgonia graphs: a
// classifier of handwritten digits, on three stages.
//
//	go run ./examples/gorgonia-mlp run examples/gorgonia-mlp/config.toml
//	go run ./examples/gorgonia-mlp plan examples/gorgonia-mlp/config.toml
//	go run ./examples/gorgonia-mlp predict --from runs/gorgonia-mlp
//
// Its data, examples/digits, is real and ships with the project: 1,797 images of 8×8 pixels, in
// text files that a reader can look at. (MNIST has twelve megabytes.)
package main

import (
	"fmt"
	"math"
	"slices"

	G "gorgonia.org/gorgonia"

	"github.com/troupe-ml/troupe/cli"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/stages/gorgonia"
)

func main() {
	stages.RegisterFamily("gorgonia-mlp", family)
	cli.Main()
}

// family has model.layers hidden layers of width model.hidden, and one layer that outputs the
// classes. Each is its own graph. With the option "whole" they form one graph, as in a program
// without a pipeline; the losses are bit-identical.
func family(g *stages.Graph, c stages.Config) error {
	label, err := c.Field("y")
	if err != nil {
		return err
	}
	pixels, err := c.Field("x")
	if err != nil {
		return err
	}
	if label.Classes == 0 || len(pixels.Shape) != 1 || c.Hidden == 0 {
		return fmt.Errorf("%w: the family classifies rows of numbers: set data.label and model.hidden", stages.ErrModel)
	}
	widths := []int{pixels.Shape[0]}
	for range c.Layers {
		widths = append(widths, c.Hidden)
	}
	widths = append(widths, label.Classes)
	x := []stages.Value{g.Input(pixels.Name)}
	if slices.Contains(c.Options, "whole") {
		x = g.Add("net", gorgonia.New(whole(widths...)), x...)
	} else {
		for i := range len(widths) - 1 {
			last := i == len(widths)-2
			x = g.Add(fmt.Sprintf("net.%d", i), gorgonia.New(layer("", last, widths[i], widths[i+1])), x...)
		}
	}
	g.Loss("loss", stages.NewCrossEntropy(label.Name, label.Classes), x...)
	return nil
}

// layer is act(x·W + b); the last one has no activation.
func layer(prefix string, last bool, in, out int) gorgonia.Spec {
	return gorgonia.Spec{
		Params: []stages.LayerParam{
			{Name: prefix + "weight", Shape: []int{in, out}, Init: stages.Init{Std: math.Sqrt(2 / float64(in))}}, // He et al. 2015
			{Name: prefix + "bias", Shape: []int{1, out}, NoDecay: true},
		},
		Build: func(_ *G.ExprGraph, in, params []*G.Node) ([]*G.Node, error) {
			y, err := affine(in[0], params, last)
			return []*G.Node{y}, err
		},
	}
}

func affine(x *G.Node, params []*G.Node, last bool) (*G.Node, error) {
	product, err := G.Mul(x, params[0])
	if err != nil {
		return nil, err
	}
	y, err := G.BroadcastAdd(product, params[1], nil, []byte{0})
	if err != nil || last {
		return y, err
	}
	return G.Rectify(y)
}

// whole puts all layers into one graph.
func whole(widths ...int) (all gorgonia.Spec) {
	for i := range len(widths) - 1 {
		all.Params = append(all.Params, layer(fmt.Sprintf("%d.", i), false, widths[i], widths[i+1]).Params...)
	}
	all.Build = func(_ *G.ExprGraph, in, params []*G.Node) ([]*G.Node, error) {
		x := in[0]
		for i := 0; i < len(params); i += 2 {
			var err error
			if x, err = affine(x, params[i:i+2], i == len(params)-2); err != nil {
				return nil, err
			}
		}
		return []*G.Node{x}, nil
	}
	return all
}
