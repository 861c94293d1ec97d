package gorgonia

import (
	"fmt"
	"runtime/debug"

	G "gorgonia.org/gorgonia"

	"github.com/troupe-ml/troupe/tensorops"
)

// Build adds a layer's graph to g and returns its outputs. in and params are the nodes of its
// inputs and parameters, in the order in which they were declared. It is called for each graph that
// is needed, with the shapes of the current inputs. It must build the same graph for the same
// shapes. Float32 inputs and parameters are float32 nodes. Int32 inputs are nodes of tensor.Int,
// Gorgonia's type of indices, and have no gradient.
//
// Values that are neither inputs nor parameters must be constants (G.NewConstant).
type Build func(g *G.ExprGraph, in, params []*G.Node) (out []*G.Node, err error)

// call calls the Build and turns a panic into an error.
func (build Build) call(g *G.ExprGraph, in, params []*G.Node) (out []*G.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return build(g, in, params)
}

// input describes an input of a graph.
type input struct {
	dtype tensorops.DType
	shape []int
	grad  bool // its gradient is required
}
