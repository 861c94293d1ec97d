package gorgonia

import (
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/troupe-ml/troupe/tensorops"
)

// building: Gorgonia keeps nodes in pools of its own while it builds. One graph is built
// at a time in a process; graphs are kept, so that is rare.
var building sync.Mutex

// weight is a parameter as a graph sees it.
type weight struct {
	name  string
	shape []int
}

// graph is a user's graph with the gradients' nodes.
type graph struct {
	g       *G.ExprGraph
	in      []*G.Node
	wanted  []bool // inputs whose gradient is wanted
	params  []*G.Node
	out     []*G.Node
	dout    []*G.Node // of each output; nil: no gradient flows from it
	din     []*G.Node // of each input; nil: zeros
	dparams []*G.Node
}

// newGraph builds a graph and its gradients, and refuses what cannot be trusted.
func newGraph(build Build, in []input, params []weight, float tensor.Dtype) (*graph, error) {
	building.Lock()
	defer building.Unlock()
	b := &graph{g: G.NewGraph()}
	for i, x := range in {
		dtype := float
		if x.dtype == tensorops.Int32 {
			dtype = tensor.Int
		}
		node, err := leaf(b.g, dtype, x.shape, fmt.Sprintf("input %d", i))
		if err != nil {
			return nil, err
		}
		b.in = append(b.in, node)
		b.wanted = append(b.wanted, x.grad && x.dtype != tensorops.Int32)
	}
	for _, p := range params {
		node, err := leaf(b.g, float, p.shape, "parameter "+p.name)
		if err != nil {
			return nil, err
		}
		b.params = append(b.params, node)
	}
	out, err := build.call(b.g, slices.Clone(b.in), slices.Clone(b.params))
	if err != nil {
		return nil, fmt.Errorf("%w: Build failed for inputs of %s: %w", ErrGraph, shapes(in), err)
	}
	b.out = out
	if err := b.checkOutputs(float); err != nil {
		return nil, err
	}
	if err := b.differentiate(params, float); err != nil {
		return nil, err
	}
	return b, nil
}

func shapes(in []input) string {
	s := make([][]int, len(in))
	for i := range in {
		s[i] = in[i].shape
	}
	return fmt.Sprint(s)
}

// leaf makes a node for an input, a parameter or an output's gradient.
func leaf(g *G.ExprGraph, dtype tensor.Dtype, shape []int, name string) (*G.Node, error) {
	for _, d := range shape {
		if d < 1 {
			return nil, fmt.Errorf("%w: %s has the shape %v: Gorgonia has no empty tensors", ErrInput, name, shape)
		}
	}
	if len(shape) == 0 {
		return G.NewScalar(g, dtype, G.WithName(name)), nil
	}
	return G.NewTensor(g, dtype, len(shape), G.WithShape(shape...), G.WithName(name)), nil
}

// checkOutputs looks at what Build returned.
func (b *graph) checkOutputs(float tensor.Dtype) error {
	if len(b.out) == 0 {
		return fmt.Errorf("%w: Build returned no outputs", ErrGraph)
	}
	for i, n := range b.out {
		switch {
		case n == nil:
			return fmt.Errorf("%w: Build returned nil as output %d", ErrGraph, i)
		case n.Graph() != b.g:
			return fmt.Errorf("%w: output %d is a node of another graph than the one given to Build", ErrGraph, i)
		case n.Dtype() != float:
			return fmt.Errorf("%w: output %d is of type %v, want %v", ErrGraph, i, n.Dtype(), float)
		case slices.Contains(b.out[:i], n):
			return fmt.Errorf("%w: outputs %d and %d are the same node", ErrGraph, slices.Index(b.out, n), i)
		}
	}
	return nil
}

// checkNodes: Gorgonia writes the logarithm of 1 + x or 1 − x as Log1p, and takes the node of
// the sum for another one, though it may be in use, or about to be. Such a graph has a gap
// in its numbers.
func (b *graph) checkNodes() error {
	for i, n := range b.g.AllNodes() {
		if n.ID() != int64(i) {
			return fmt.Errorf("%w: Log of 1±x, as in BinaryXent: Gorgonia recycles the node of that sum, though it may be in use: compose it with Log1p of x or −x", ErrRefused)
		}
	}
	return nil
}

// children are the operands of a node.
func (b *graph) children(n *G.Node) []*G.Node {
	var nodes []*G.Node
	for it := b.g.From(n.ID()); it != nil && it.Next(); {
		nodes = append(nodes, it.Node().(*G.Node))
	}
	return nodes
}

// reach are the nodes that others are computed from, those included, in the order in which
// they were made, which is an order in which they can be computed.
func (b *graph) reach(from []*G.Node) ([]*G.Node, error) {
	seen := make(map[*G.Node]bool)
	var nodes []*G.Node
	stack := slices.Clone(from)
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[n] {
			continue
		}
		seen[n] = true
		nodes = append(nodes, n)
		if len(nodes) > LimitNodes {
			return nil, fmt.Errorf("%w: it has more than %d nodes", ErrGraph, LimitNodes)
		}
		for _, child := range b.children(n) {
			if child.ID() >= n.ID() {
				return nil, fmt.Errorf("%w: node %v is an operand of %v, which was made before it", ErrGraph, child, n)
			}
			stack = append(stack, child)
		}
	}
	slices.SortFunc(nodes, func(a, b *G.Node) int { return int(a.ID() - b.ID()) })
	return nodes, nil
}

// signature tells whether two graphs are the same: of the same operations, in the same
// order, with the same constants.
func signature(steps []step, constants []G.Value) uint64 {
	h := fnv.New64a()
	for _, s := range steps {
		fmt.Fprintf(h, "%v %v %v %x;", s.op, s.args, s.shape, s.op.Hashcode())
	}
	for i, c := range constants {
		if c == nil {
			continue
		}
		fmt.Fprintf(h, "%d %v;", i, c.Shape())
		if a, err := arrayOf(c, []int(c.Shape())); err == nil {
			_, _ = h.Write(a.Bytes()) // a hash takes everything
		} else {
			fmt.Fprint(h, c.Data())
		}
	}
	return h.Sum64()
}
