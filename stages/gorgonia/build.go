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

// building allows one graph at a time to be built in the process, since Gorgonia keeps nodes in
// global pools while it builds. Graphs are reused, so building is rare.
var building sync.Mutex

// weight is a parameter of a graph.
type weight struct {
	name  string
	shape []int
}

// graph is a user's graph together with the nodes of the gradients.
type graph struct {
	g       *G.ExprGraph
	in      []*G.Node
	wanted  []bool // inputs whose gradient is required
	params  []*G.Node
	out     []*G.Node
	dout    []*G.Node // gradient of each output; nil: none
	din     []*G.Node // gradient of each input; nil: zeros
	dparams []*G.Node
}

// newGraph builds a graph and its gradients, and refuses operations that cannot be trusted.
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
			return nil, fmt.Errorf("%w: %s has the shape %v, but Gorgonia has no empty tensors", ErrInput, name, shape)
		}
	}
	if len(shape) == 0 {
		return G.NewScalar(g, dtype, G.WithName(name)), nil
	}
	return G.NewTensor(g, dtype, len(shape), G.WithShape(shape...), G.WithName(name)), nil
}

// checkOutputs checks the outputs of Build.
func (b *graph) checkOutputs(float tensor.Dtype) error {
	if len(b.out) == 0 {
		return fmt.Errorf("%w: Build returned no outputs", ErrGraph)
	}
	for i, n := range b.out {
		switch {
		case n == nil:
			return fmt.Errorf("%w: Build returned nil as output %d", ErrGraph, i)
		case n.Graph() != b.g:
			return fmt.Errorf("%w: output %d is not a node of the graph that was passed to Build", ErrGraph, i)
		case n.Dtype() != float:
			return fmt.Errorf("%w: output %d has type %v, want %v", ErrGraph, i, n.Dtype(), float)
		case slices.Contains(b.out[:i], n):
			return fmt.Errorf("%w: outputs %d and %d are the same node", ErrGraph, slices.Index(b.out, n), i)
		}
	}
	return nil
}

// checkNodes refuses Log of 1±x. Gorgonia replaces it with Log1p and reuses the node of the sum for
// another node, although the sum may be in use. Such a graph has a gap in its node numbers.
func (b *graph) checkNodes() error {
	for i, n := range b.g.AllNodes() {
		if n.ID() != int64(i) {
			return fmt.Errorf("%w: Log of 1±x, as in BinaryXent: Gorgonia reuses the node of the sum although it may be in use. Use Log1p of x or −x", ErrRefused)
		}
	}
	return nil
}

// children returns the operands of a node.
func (b *graph) children(n *G.Node) []*G.Node {
	var nodes []*G.Node
	for it := b.g.From(n.ID()); it != nil && it.Next(); {
		nodes = append(nodes, it.Node().(*G.Node))
	}
	return nodes
}

// reach returns the nodes on which the given nodes depend, including them, in the order in which
// they were made. In that order they can be computed.
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
			return nil, fmt.Errorf("%w: the graph has more than %d nodes", ErrGraph, LimitNodes)
		}
		for _, child := range b.children(n) {
			if child.ID() >= n.ID() {
				return nil, fmt.Errorf("%w: node %v is an operand of %v but was made after it", ErrGraph, child, n)
			}
			stack = append(stack, child)
		}
	}
	slices.SortFunc(nodes, func(a, b *G.Node) int { return int(a.ID() - b.ID()) })
	return nodes, nil
}

// signature is equal for two equal graphs: with the same operations in the same order and the same
// constants.
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
			_, _ = h.Write(a.Bytes()) // a hash never fails
		} else {
			fmt.Fprint(h, c.Data())
		}
	}
	return h.Sum64()
}
