package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// experttensor.go has what layers with experts do in a tensor group. Each rank has a part of the inner width of every expert, as
// of a dense part's: outputs of the first two matrices, inputs of the last one. All ranks route the same tokens from the same
// numbers, so they choose the same experts, and no token travels within the group. What an expert returns is a part of a sum, and
// so is all that follows from it in a backward: the gradients of the weights of a token's experts, of the logits, and of the
// router. All of it is linear, so only the layer's output and the gradient of its input are added in a pass. The router's gradient
// is added at the end of the step.
//
// With expert groups, whose ranks have the same place in their tensor groups, a rank has a part of each of its experts. With
// ExpertParallel.Whole none of this holds: see expertrows.go.

// checkExpertWidths checks that size ranks can share the experts' widths; whole: only that of the shared expert.
func (m *Model) checkExpertWidths(size int, whole bool) error {
	switch x := m.Config.Experts; {
	case x.none():
		return nil
	case !whole && x.Width%size != 0:
		return fmt.Errorf("%w: tensor parallelism of %d: it does not divide the width of an expert, %d: use a divisor of that width",
			ErrModel, size, x.Width)
	case x.SharedWidth > 0 && x.SharedWidth < size:
		return fmt.Errorf("%w: tensor parallelism of %d exceeds the width of the shared expert, %d", ErrModel, size, x.SharedWidth)
	}
	return nil
}

// byWidth splits one kind of matrix of all experts, [E, out, in], by a dimension, unless a rank has whole experts.
func (m *Model) byWidth(u use, dim int) use {
	if m.expert.Whole {
		return u
	}
	return m.cut(u, Split{dim, 1, u.param.Whole[dim]})
}

// cutExpertsOfPart leaves a rank of an expert group some experts of the part of all that the tensor group has left it. They are a range
// of the part's elements.
func cutExpertsOfPart(p *Param, from, to int) {
	each := elements(p.Shape[1:])
	p.Slice, p.Shape = p.Slice.Range(from*each, to*each), append([]int{to - from}, p.Shape[1:]...)
}

// groupShape returns the shape of what the ranks of a tensor group have together: the whole parameter, of experts those of this rank.
func (p *Param) groupShape() []int {
	if p.experts {
		return append([]int{p.Shape[0]}, p.Whole[1:]...)
	}
	return p.Whole
}

// cutBiases splits the biases of experts by the outputs of their matrices, and as these in an expert group. That of the last matrix has
// all outputs: one rank adds it. The gradient of the router's is a part of a sum.
func (m *Model) cutBiases(b *expertBiases) {
	if b != nil {
		b.router = parted(b.router, byHeads)
		b.gate, b.up, b.down = m.cutExperts(m.byWidth(b.gate, 1)), m.cutExperts(m.byWidth(b.up, 1)), m.cutExperts(b.down)
	}
}

// cutAdapter splits an adapter as that of a linear layer: see addAdapter. A rank of an expert group has that of its own experts.
func (m *Model) cutAdapter(a *expertAdapter, of int) *expertAdapter {
	switch {
	case m.expert.Whole:
	case of == ofDown:
		a.a, a.b = m.byWidth(a.a, 2), parted(a.b, byHeads)
	default:
		a.a, a.b = parted(a.a, byHeads), m.byWidth(a.b, 1)
	}
	a.a, a.b = m.cutExperts(a.a), m.cutExperts(a.b)
	return a
}

// addsOnce reports whether this rank adds what the ranks of its tensor group must add once to a sum of their parts. If each has rows of
// its own, each adds it to these.
func (c *pass) addsOnce() bool { return c.routesPart() || c.tensor().rank() == 0 }

// lossesOnce returns the options and the logits of a RouteGrad: one rank of a tensor group adds the gradients of the router's losses.
func (c *pass) lossesOnce(o tensorops.RouteOpts, logits tensorops.Tensor) (tensorops.RouteOpts, tensorops.Tensor) {
	if !c.addsOnce() {
		o.Balance, o.ZLoss, logits = 0, 0, tensorops.Tensor{}
	}
	return o, logits
}
