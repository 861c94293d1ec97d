package stages

import "github.com/troupe-ml/troupe/tensorops"

// head is the pipeline's last layer: final norm, projection onto the vocabulary,
// and cross-entropy. It has no output but the loss.
type head struct {
	norm  norm
	proj  linear
	vocab int
}

type headState struct {
	x, stats, n tensorops.Tensor // input, norm's statistics, normalised input
	logits, lse tensorops.Tensor // after inputGrad, logits holds their gradient
	dn          tensorops.Tensor // gradient of n, until weightGrad
	loss        tensorops.Tensor // [2] float64 on the device
	host        [tensorops.LossStats]float64
}

func (*head) symbol() byte    { return SymbolLoss }
func (*head) newState() state { return new(headState) }

func (h *head) uses() []use { return append(h.norm.uses(), h.proj.uses()...) }

func (s *headState) drop(l *tensorops.List, _ bool) {
	free(l, &s.x, &s.stats, &s.n, &s.logits, &s.lse, &s.dn, &s.loss)
}

func (h *head) forward(c *pass, st state, x tensorops.Tensor) tensorops.Tensor {
	s := st.(*headState)
	s.x = x
	s.n, s.stats = h.norm.forward(c, x)
	s.logits = c.Alloc(tensorops.Float32, c.mb.Sequences, c.mb.Positions, h.vocab)
	h.proj.forward(c, s.logits, s.n)
	s.lse = c.Alloc(tensorops.Float64, c.rows())
	s.loss = c.Alloc(tensorops.Float64, tensorops.LossStats)
	c.CrossEntropy(s.loss, s.lse, s.logits, c.targets)
	c.Fetch(tensorops.HostBytes(s.host[:]), s.loss)
	return tensorops.Tensor{}
}

func (h *head) inputGrad(c *pass, st state, _ tensorops.Tensor) tensorops.Tensor {
	s := st.(*headState)
	c.CrossEntropyGrad(s.logits, s.logits, s.lse, c.targets, c.mb.LossScale)
	s.dn = c.AllocLike(s.n)
	h.proj.inputGrad(c, s.dn, s.logits, false)
	dx := c.AllocLike(s.x)
	h.norm.inputGrad(c, dx, s.dn, s.x, s.stats, tensorops.Tensor{})
	return dx
}

func (h *head) weightGrad(c *pass, st state) {
	s := st.(*headState)
	h.proj.weightGrad(c, s.n, s.logits)
	h.norm.weightGrad(c, s.dn, s.x, s.stats)
	s.drop(c.List, true)
}
