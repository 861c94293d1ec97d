package gorgonia_test

import (
	"fmt"

	G "gorgonia.org/gorgonia"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/stages/gorgonia"
	"github.com/troupe-ml/troupe/tensorops"
)

// A hidden layer of a classifier: its graph is built for rows of 64 numbers, however many
// a microbatch has.
func ExampleNew() {
	hidden := gorgonia.New(gorgonia.Spec{
		Params: []stages.LayerParam{
			{Name: "weight", Shape: []int{64, 32}, Init: stages.Init{Std: 0.125}},
			{Name: "bias", Shape: []int{1, 32}},
		},
		Build: func(_ *G.ExprGraph, in, params []*G.Node) ([]*G.Node, error) {
			product, err := G.Mul(in[0], params[0])
			if err != nil {
				return nil, err
			}
			sum, err := G.BroadcastAdd(product, params[1], nil, []byte{0})
			if err != nil {
				return nil, err
			}
			y, err := G.Rectify(sum)
			return []*G.Node{y}, err
		},
	})

	// A family of models, which a configuration names: model.family = "example-gorgonia".
	stages.RegisterFamily("example-gorgonia", func(g *stages.Graph, _ stages.Config) error {
		h := g.Add("hidden", hidden, g.Input("pixels"))
		logits := g.Add("logits", stages.NewDense(32, 10, "", 0), h...)
		g.Loss("loss", stages.NewCrossEntropy("label", 10), logits...)
		return nil
	})

	out, err := hidden.Check(tensorops.Array{Shape: []int{16, 64}})
	fmt.Println(out, err)
	// Output: [[16 32]] <nil>
}
