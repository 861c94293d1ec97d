package gorgonia

import (
	"fmt"
	"runtime/debug"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// differentiate adds the nodes of the gradients. Gorgonia's Backpropagate fails if an output or a
// parameter has no gradient. Here such a gradient is zero, or an error that names it. The gradients
// of a node with several uses are added in the order of the uses, the last one first.
func (b *graph) differentiate(params []weight, float tensor.Dtype) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: Gorgonia panicked while building the gradients: %v\n%s", ErrGraph, p, debug.Stack())
		}
	}()
	if err := b.checkNodes(); err != nil {
		return err
	}
	forward, err := b.reach(b.out)
	if err != nil {
		return err
	}
	if err := b.checkForward(forward, float); err != nil {
		return err
	}
	reached := make(map[*G.Node]bool, len(forward))
	for _, n := range forward {
		reached[n] = true
	}
	moving, err := b.moving(forward)
	if err != nil {
		return err
	}
	for i, p := range b.params {
		if !reached[p] {
			return fmt.Errorf("%w: the outputs do not depend on parameter %q: use it, or remove it", ErrGraph, params[i].name)
		}
	}
	gradient := make(map[*G.Node]*G.Node)
	b.dout = make([]*G.Node, len(b.out))
	for i, n := range b.out {
		if !moving[n] {
			continue
		}
		if b.dout[i], err = leaf(b.g, float, n.Shape(), fmt.Sprintf("gradient of output %d", i)); err != nil {
			return err
		}
		gradient[n] = b.dout[i]
	}
	for i := len(forward) - 1; i >= 0; i-- {
		n := forward[i]
		if n.Op() == nil || !moving[n] || gradient[n] == nil {
			continue
		}
		if err := b.step(n, gradient, moving); err != nil {
			return err
		}
	}
	for _, n := range b.in {
		b.din = append(b.din, gradient[n])
	}
	for i, p := range b.params {
		if gradient[p] == nil {
			return fmt.Errorf("%w: parameter %q has no gradient: the operations between it and the outputs are piecewise constant", ErrGraph,
				params[i].name)
		}
		b.dparams = append(b.dparams, gradient[p])
	}
	if err := b.checkNodes(); err != nil {
		return err
	}
	return b.checkGradients(params)
}

// moving returns the nodes through which gradients flow to an input or a parameter.
func (b *graph) moving(forward []*G.Node) (map[*G.Node]bool, error) {
	moving := make(map[*G.Node]bool)
	for i, n := range b.in {
		moving[n] = b.wanted[i]
	}
	for _, n := range b.params {
		moving[n] = true
	}
	for _, n := range forward {
		if n.Op() == nil {
			continue
		}
		children := b.children(n)
		var flows []bool
		for i, child := range children {
			if !moving[child] || constantInPieces(n) {
				continue
			}
			op, ok := n.Op().(G.SDOp)
			if !ok {
				return nil, fmt.Errorf("%w: %v has no symbolic gradient", ErrRefused, n.Op())
			}
			if flows == nil {
				flows = op.DiffWRT(len(children))
			}
			if i >= len(flows) || !flows[i] {
				return nil, fmt.Errorf("%w: Gorgonia has no gradient of %v with respect to operand %d", ErrRefused, n.Op(), i)
			}
			moving[n] = true
		}
	}
	return moving, nil
}

// step passes the gradient of a node to its operands.
func (b *graph) step(n *G.Node, gradient map[*G.Node]*G.Node, moving map[*G.Node]bool) error {
	children := b.children(n)
	parts, err := n.Op().(G.SDOp).SymDiff(G.Nodes(children), n, gradient[n])
	if err != nil {
		return fmt.Errorf("%w: the gradient of %v: %w", ErrGraph, n.Op(), err)
	}
	for i, child := range children {
		if !moving[child] {
			continue
		}
		if i >= len(parts) || parts[i] == nil {
			return fmt.Errorf("%w: Gorgonia returned no gradient of %v with respect to operand %d", ErrRefused, n.Op(), i)
		}
		part := parts[i]
		if have := gradient[child]; have != nil {
			if part, err = G.Add(have, part); err != nil {
				return fmt.Errorf("%w: adding the gradients of %v: %w", ErrGraph, child, err)
			}
		}
		gradient[child] = part
	}
	return nil
}

// checkGradients checks that each gradient has the shape of its input or parameter.
func (b *graph) checkGradients(params []weight) error {
	var roots []*G.Node
	for _, n := range append(b.din[:len(b.din):len(b.din)], b.dparams...) {
		if n != nil {
			roots = append(roots, n)
		}
	}
	nodes, err := b.reach(roots)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if n.Op() != nil {
			if err := b.refuse(n, true); err != nil {
				return err
			}
		}
	}
	for i, n := range b.din {
		if n != nil && n.Shape().TotalSize() != b.in[i].Shape().TotalSize() {
			return fmt.Errorf("%w: Gorgonia's gradient of input %d has the shape %v, but the input has %v", ErrGraph, i, n.Shape(), b.in[i].Shape())
		}
	}
	for i, n := range b.dparams {
		if n.Shape().TotalSize() != b.params[i].Shape().TotalSize() {
			return fmt.Errorf("%w: Gorgonia's gradient of parameter %q has the shape %v, but the parameter has %v", ErrGraph, params[i].name,
				n.Shape(),
				b.params[i].Shape())
		}
	}
	return nil
}
