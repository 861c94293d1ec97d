package stages

import "github.com/troupe-ml/troupe/tensorops"

// deltaMixer is Qwen3.5's linear attention: projections to q, k and v, each with a causal convolution
// and SiLU; the gated delta rule; and a norm on each head, multiplied by SiLU of another projection.
type deltaMixer struct {
	spec         deltaSpec // with this rank's heads
	qkv          [3]linear
	z, b, a      linear
	taps         [3]use // weights of the convolutions of q, k and v
	aLog, dtBias use
	norm         norm // of each head
}

// deltaEps is what Qwen3.5 adds to the sum of squares of q and of k.
const deltaEps = 1e-6

// deltaState holds what a backward needs.
type deltaState struct {
	qkv    [3]tensorops.Tensor // before the convolutions
	z, a   tensorops.Tensor
	gates  tensorops.Tensor
	rule   tensorops.Tensor    // the gated delta rule's output
	stats  tensorops.Tensor    // of its norm
	dmixed [3]tensorops.Tensor // gradients kept for weight gradients: of the convolutions' outputs
	dqkv   [3]tensorops.Tensor // of their inputs
	dz     tensorops.Tensor
	db, da tensorops.Tensor
	dgates tensorops.Tensor
	dnorm  tensorops.Tensor // of the norm's output
}

func (s *deltaState) drop(l *tensorops.List) {
	for i := range s.qkv {
		free(l, &s.qkv[i], &s.dmixed[i], &s.dqkv[i])
	}
	free(l, &s.z, &s.a, &s.gates, &s.rule, &s.stats, &s.dz, &s.db, &s.da, &s.dgates, &s.dnorm)
}

func (*deltaMixer) newState() mixerState { return new(deltaState) }

func (m *deltaMixer) uses() (us []use) {
	for _, l := range m.linears() {
		us = append(us, l.uses()...)
	}
	us = append(us, m.taps[:]...)
	us = append(us, m.aLog, m.dtBias)
	return append(us, m.norm.uses()...)
}

func (m *deltaMixer) linears() []*linear {
	return []*linear{&m.qkv[0], &m.qkv[1], &m.qkv[2], &m.z, &m.b, &m.a}
}

func (m *deltaMixer) opts(sequences int) tensorops.DeltaOpts {
	return tensorops.DeltaOpts{Batch: sequences, KeyHeads: m.spec.keyHeads, ValueHeads: m.spec.valueHeads, Eps: deltaEps}
}

// of records a projection of n.
func (m *deltaMixer) of(c *pass, l *linear, n tensorops.Tensor) tensorops.Tensor {
	y := c.Alloc(c.inner(), c.mb.Sequences, c.mb.Positions, l.out)
	l.forward(c, y, n)
	return y
}

// heads returns a view with a row for each head of values of a position.
func (m *deltaMixer) heads(t tensorops.Tensor) tensorops.Tensor {
	return t.View(t.Len()/m.spec.valueWidth, m.spec.valueWidth)
}

// makeGates records the gates and returns them with the projection that their gradient needs.
func (m *deltaMixer) makeGates(c *pass, n tensorops.Tensor) (gates, a tensorops.Tensor) {
	a = m.of(c, &m.a, n)
	b := m.of(c, &m.b, n)
	gates = c.Alloc(tensorops.Float32, c.mb.Sequences, c.mb.Positions, 2*m.spec.valueHeads)
	c.DeltaGates(gates, a, b, c.weight(m.aLog), c.weight(m.dtBias), tensorops.DeltaGatesOpts{Batch: c.mb.Sequences, Starts: c.starts})
	c.Free(b)
	return gates, a
}

// convOpts returns the sizes of convolutions over the microbatch, and where its documents start.
func (c *pass) convOpts() tensorops.ConvOpts {
	return tensorops.ConvOpts{Batch: c.mb.Sequences, Starts: c.starts}
}

// convolve records the convolutions of q, k and v.
func (m *deltaMixer) convolve(c *pass, qkv [3]tensorops.Tensor) (mixed [3]tensorops.Tensor) {
	for i, x := range qkv {
		mixed[i] = c.AllocLike(x)
		c.CausalConv(mixed[i], x, c.weight(m.taps[i]), tensorops.Tensor{}, c.convOpts())
	}
	return mixed
}

func (m *deltaMixer) forward(c *pass, st mixerState, n tensorops.Tensor) tensorops.Tensor {
	s := st.(*deltaState)
	for i := range m.qkv {
		s.qkv[i] = m.of(c, &m.qkv[i], n)
	}
	s.z = m.of(c, &m.z, n)
	s.gates, s.a = m.makeGates(c, n)
	c.Free(n)
	mixed := m.convolve(c, s.qkv)
	s.rule = c.AllocLike(mixed[2])
	c.GatedDelta(s.rule, mixed[0], mixed[1], mixed[2], s.gates, tensorops.Tensor{}, m.opts(c.mb.Sequences))
	free(c.List, &mixed[0], &mixed[1], &mixed[2])
	var o tensorops.Tensor
	o, s.stats = m.gated(c, s.rule, s.z)
	return o
}

// gated records norm(rule)·SiLU(z) and returns it with the norm's statistics.
func (m *deltaMixer) gated(c *pass, rule, z tensorops.Tensor) (o, stats tensorops.Tensor) {
	if !rule.Valid() { // after an error
		return rule, stats
	}
	o, stats = m.norm.forward(c, m.heads(rule))
	o = o.View(rule.Shape()...)
	c.SwiGLU(o, z, o)
	return o, stats
}

func (m *deltaMixer) inputGrad(c *pass, st mixerState, x, _, do tensorops.Tensor) tensorops.Tensor {
	s := st.(*deltaState)
	if !s.rule.Valid() { // after an error
		c.Free(do)
		return c.sumOf(x, len(m.linears()))
	}
	n := m.norm.recompute(c, m.heads(s.rule)).View(s.rule.Shape()...)
	s.dz, s.dnorm = c.AllocLike(s.z), do
	c.SwiGLUGrad(s.dz, s.dnorm, do, s.z, n)
	c.Free(n)
	drule := c.AllocLike(s.rule)
	m.norm.inputGrad(c, m.heads(drule), m.heads(s.dnorm), m.heads(s.rule), s.stats, tensorops.Tensor{})
	mixed := m.convolve(c, s.qkv)
	for i := range mixed {
		s.dmixed[i] = c.AllocLike(mixed[i])
	}
	s.dgates = c.AllocLike(s.gates)
	c.GatedDeltaGrad(s.dmixed[0], s.dmixed[1], s.dmixed[2], s.dgates, drule, mixed[0], mixed[1], mixed[2], s.gates, m.opts(c.mb.Sequences))
	free(c.List, &drule, &mixed[0], &mixed[1], &mixed[2])
	for i := range s.dqkv {
		s.dqkv[i] = c.AllocLike(s.qkv[i])
		c.CausalConvGrad(s.dqkv[i], s.dmixed[i], s.qkv[i], c.weight(m.taps[i]), c.convOpts())
	}
	s.da, s.db = c.AllocLike(s.a), c.AllocLike(s.a)
	c.DeltaGatesGrad(s.da, s.db, s.dgates, s.gates, s.a, c.weight(m.aLog), c.weight(m.dtBias))
	dn := c.sumOf(x, len(m.linears()))
	for i, d := range s.projected() {
		m.linears()[i].inputGrad(c, dn, d, i > 0)
	}
	return dn
}

// projected returns the gradients of the projections' outputs, in the order of linears.
func (s *deltaState) projected() []tensorops.Tensor {
	return []tensorops.Tensor{s.dqkv[0], s.dqkv[1], s.dqkv[2], s.dz, s.db, s.da}
}

func (m *deltaMixer) weightGrad(c *pass, st mixerState, n tensorops.Tensor) {
	for i, d := range st.(*deltaState).projected() {
		m.linears()[i].weightGrad(c, n, d)
	}
}

func (m *deltaMixer) otherWeightGrad(c *pass, st mixerState) {
	s := st.(*deltaState)
	if !s.rule.Valid() { // after an error
		return
	}
	for i, w := range m.taps {
		if !w.frozen() {
			c.CausalConvWeightGrad(c.grad(w), s.dmixed[i], s.qkv[i], c.weight(w), c.convOpts())
		}
	}
	if !m.aLog.frozen() || !m.dtBias.frozen() {
		m.gatesGrad(c, s)
	}
	m.norm.weightGrad(c, m.heads(s.dnorm), m.heads(s.rule), s.stats)
}

// gatesGrad adds the gradients of the two weights of the gates. One that is frozen has none, so its
// sum is made beside.
func (m *deltaMixer) gatesGrad(c *pass, s *deltaState) {
	var unused tensorops.Tensor
	grad := func(w use) tensorops.Tensor {
		if !w.frozen() {
			return c.grad(w)
		}
		unused = c.Alloc(tensorops.Float32, m.spec.valueHeads)
		c.Fill(unused, 0)
		return unused
	}
	c.DeltaGatesWeightGrad(grad(m.aLog), grad(m.dtBias), s.dgates, s.gates, s.a, c.weight(m.aLog), c.weight(m.dtBias))
	free(c.List, &unused)
}

func (m *deltaMixer) afterInputGrad(c *pass, st mixerState) {
	s := st.(*deltaState)
	free(c.List, &s.z)
}

// deltaCache is what the layer keeps of a sequence: the last rows before each convolution, and the
// gated delta rule's state. Its size does not depend on the sequence.
type deltaCache struct {
	rows  [3]tensorops.Tensor
	state tensorops.Tensor
}

func (m *deltaMixer) newCache(l *tensorops.List, dtype tensorops.DType, _ int) mixerCache {
	d := m.spec
	h := &deltaCache{state: l.Alloc(tensorops.Float32, d.valueHeads, d.keyWidth, d.valueWidth)}
	for i, width := range []int{d.keys(), d.keys(), d.values()} {
		h.rows[i] = l.Alloc(dtype, d.taps-1, width)
	}
	return h
}

func (h *deltaCache) release() {
	for _, t := range h.rows {
		t.Release()
	}
	h.state.Release()
}

// copyOf records a cache with the contents of h, unless it is for a text without positions.
func (m *deltaMixer) copyOf(c *pass, h *deltaCache, used int) *deltaCache {
	own := m.newCache(c.List, c.stage.productType(), 0).(*deltaCache)
	if used > 0 {
		for i := range h.rows {
			c.Copy(own.rows[i], h.rows[i])
		}
		c.Copy(own.state, h.state)
	}
	return own
}

// clear records the cache of a sequence without positions.
func (h *deltaCache) clear(c *pass) {
	for _, t := range h.rows {
		c.Fill(t, 0)
	}
	c.Fill(h.state, 0)
}

func (m *deltaMixer) decode(c *pass, caches []mixerCache, n tensorops.Tensor) tensorops.Tensor {
	var qkv, mixed [3]tensorops.Tensor
	for i := range m.qkv {
		qkv[i] = m.of(c, &m.qkv[i], n)
		mixed[i] = c.AllocLike(qkv[i])
	}
	z := m.of(c, &m.z, n)
	gates, a := m.makeGates(c, n)
	rule := c.AllocLike(z)
	for i, r := range c.runs() {
		h, _ := caches[i].(*deltaCache)
		if c.fed.branch { // the sequence keeps its own
			h = m.copyOf(c, h, r.first)
		}
		if r.first == 0 {
			h.clear(c)
		}
		rows := func(t tensorops.Tensor) tensorops.Tensor { return t.RowRange(r.lo, r.hi) }
		for j, w := range m.taps {
			c.CausalConv(rows(mixed[j]), rows(qkv[j]), c.weight(w), h.rows[j], tensorops.ConvOpts{Batch: 1})
		}
		c.GatedDelta(rows(rule), rows(mixed[0]), rows(mixed[1]), rows(mixed[2]), rows(gates), h.state, m.opts(1))
		if c.fed.branch {
			free(c.List, &h.rows[0], &h.rows[1], &h.rows[2], &h.state)
		}
	}
	o, stats := m.gated(c, rule, z)
	free(c.List, &n, &a, &gates, &z, &rule, &stats)
	for i := range qkv {
		free(c.List, &qkv[i], &mixed[i])
	}
	return o
}
