package stages

import "github.com/troupe-ml/troupe/tensorops"

// latentMixer is multi-head latent attention. Keys and values are linear functions of a narrow vector of each position, and so may
// queries be; one further vector of each position has the rotary positions of the keys of all heads. The operation of attention gets
// whole heads: first the channels with rotary positions, then the others, then zeros up to the width of a head. Their order changes no
// product of a query and a key.
type latentMixer struct {
	spec     LatentConfig
	attn     attentionMixer // attention over whole heads, without projections
	qa       linear         // to the latent queries, if they have a width
	q        linear         // to queries, from the latent ones or from the input
	kva, kvb linear
	qNorm    norm // of the latent queries
	kvNorm   norm
}

// latentState holds what a backward needs.
type latentState struct {
	attentionState                    // lse
	qa, qStats       tensorops.Tensor // the latent queries before their norm
	latent, kvStats  tensorops.Tensor // the latent keys and values before their norm
	q, k, v          tensorops.Tensor // whole heads
	dqb, dqn, dqa    tensorops.Tensor // gradients kept for weight gradients
	dkvb, dkvn, dkva tensorops.Tensor
}

func (s *latentState) drop(l *tensorops.List) {
	s.attentionState.drop(l)
	free(l, &s.qa, &s.qStats, &s.latent, &s.kvStats, &s.q, &s.k, &s.v, &s.dqb, &s.dqn, &s.dqa, &s.dkvb, &s.dkvn, &s.dkva)
}

func (*latentMixer) newState() mixerState { return new(latentState) }

func (m *latentMixer) linears() []*linear {
	if m.spec.QRank > 0 {
		return []*linear{&m.qa, &m.q, &m.kva, &m.kvb}
	}
	return []*linear{&m.q, &m.kva, &m.kvb}
}

func (m *latentMixer) uses() (us []use) {
	if m.spec.QRank > 0 {
		us = append(us, m.qNorm.uses()...)
	}
	us = append(us, m.kvNorm.uses()...)
	for _, l := range m.linears() {
		us = append(us, l.uses()...)
	}
	return us
}

// latent adds a layer's latent attention and its output projection. A tensor group splits it by heads. Every rank computes the latent
// vectors, so the gradients of what makes them are parts of a sum, as the gradients of these vectors are.
func (f *decoder) latent(m *Model, spec layerSpec, at string, drop site) (mixer, linear) {
	a, n, c := spec.latent, f.names.latent, m.Config
	whole := spec
	whole.headDim, whole.kvHeads = a.headWidth(), spec.heads
	mix := &latentMixer{spec: a, attn: attentionMixer{spec: whole.on(m.tensor), heads: spec.heads, kvCopies: 1, drop: drop}}
	norm := func(name string, width int) norm { // transformers has their own epsilon
		g := m.rmsNorm(at+name, width, 0, byHeads)
		g.eps = latentEps
		return g
	}
	vectors := func(name string, out int) linear {
		l := f.whole(m, at+name, normalInit, c.AttentionBias, c.Hidden, out)
		if l.w = parted(l.w, byHeads); l.hasBias {
			l.b = parted(l.b, byHeads)
		}
		return l
	}
	heads := func(name string, in, each int) linear {
		return m.byColumns(f.linear(m, at+name, normalInit, false, in, spec.heads*each), 1, spec.heads)
	}
	if a.QRank > 0 {
		mix.qa = vectors(n.qa, a.QRank)
		mix.qNorm = norm(n.qNorm, a.QRank)
		mix.q = heads(n.qb, a.QRank, a.width())
	} else {
		mix.q = heads(f.names.q, c.Hidden, a.width())
	}
	mix.kva = vectors(n.kva, a.KVRank+a.Rope)
	mix.kvNorm = norm(n.kvNorm, a.KVRank)
	mix.kvb = heads(n.kvb, a.KVRank, a.Nope+a.Value)
	return mix, f.row(m, at+f.names.o, c.AttentionBias, spec.heads*a.Value, spec.heads)
}

// latentEps is the epsilon of the norms of latent vectors, whatever that of the others.
const latentEps = 1e-6

// latentNames are the names of latent attention's parts.
type latentNames struct{ qa, qNorm, qb, kva, kvNorm, kvb string }

// alloc allocates a row of n numbers for each position.
func (c *pass) alloc(n int) tensorops.Tensor {
	return c.Alloc(c.inner(), c.mb.Sequences, c.mb.Positions, n)
}

// byHead returns a view with a row for each head of a position.
func (m *latentMixer) byHead(t tensorops.Tensor) tensorops.Tensor {
	if !t.Valid() {
		return t
	}
	return t.View(t.Rows()*m.attn.spec.heads, t.Cols()/m.attn.spec.heads)
}

// heads allocates whole heads, with zeros if only the first channels of each are written.
func (m *latentMixer) heads(c *pass, written int) tensorops.Tensor {
	t := c.alloc(m.attn.spec.heads * m.spec.headWidth())
	if written < m.spec.headWidth() {
		c.Fill(t, 0)
	}
	return t
}

// rotate rotates the first channels of heads by their positions; inverse rotates back.
func (m *latentMixer) rotate(c *pass, t tensorops.Tensor, heads int, inverse bool) {
	o := tensorops.RoPEOpts{Inverse: inverse, Heads: heads, Interleaved: m.spec.Interleave}
	c.eachRun(t, c.starts, c.runs(), func(rows, starts tensorops.Tensor, r run) {
		positions := c.positionsInDocument()
		if c.fed != nil { // each run is a sequence of its own
			positions = r.first + r.hi - r.lo
		}
		o.Rotation = m.attn.rotations.of(m.attn.spec.rope, m.spec.Rope, positions)
		o.Period, o.First, o.Starts = r.hi-r.lo, r.first, starts
		c.RoPE(rows, o)
	})
}

// arrange copies the channels of heads of queries from the order of the projection to that of whole heads, or back.
func (m *latentMixer) arrange(c *pass, whole, projected tensorops.Tensor, back bool) {
	w, p, rope := m.byHead(whole), m.byHead(projected), m.spec.Rope
	for _, of := range [][2]tensorops.Tensor{{w.Columns(0, rope), p.Columns(m.spec.Nope, m.spec.width())},
		{w.Columns(rope, m.spec.width()), p.Columns(0, m.spec.Nope)}} {
		if back {
			of[0], of[1] = of[1], of[0]
		}
		c.Copy(of[0], of[1])
	}
}

// spread copies what a projection has made to keys and values, or their gradients back.
func (m *latentMixer) spread(c *pass, k, v, projected tensorops.Tensor, back bool) {
	p, rope := m.byHead(projected), m.spec.Rope
	for _, of := range [][2]tensorops.Tensor{{m.byHead(k).Columns(rope, m.spec.width()), p.Columns(0, m.spec.Nope)},
		{m.byHead(v).Columns(0, m.spec.Value), p.Columns(m.spec.Nope, m.spec.Nope+m.spec.Value)}} {
		if back {
			of[0], of[1] = of[1], of[0]
		}
		c.Copy(of[0], of[1])
	}
}

// make records queries, keys and values from n, which it owns.
func (m *latentMixer) make(c *pass, s *latentState, n tensorops.Tensor) {
	a, in := m.spec, n
	if a.QRank > 0 {
		s.qa = c.alloc(a.QRank)
		m.qa.forward(c, s.qa, n)
		in, s.qStats = m.qNorm.forward(c, s.qa)
	}
	projected := c.alloc(m.q.out)
	m.q.forward(c, projected, in)
	if a.QRank > 0 {
		c.Free(in)
	}
	s.q = m.heads(c, a.width())
	m.arrange(c, s.q, projected, false)
	c.Free(projected)
	m.rotate(c, s.q, m.attn.spec.heads, false)

	both, turned := c.alloc(m.kva.out), c.alloc(a.Rope)
	m.kva.forward(c, both, n)
	c.Free(n)
	s.latent = c.alloc(a.KVRank)
	c.Copy(s.latent, both.Columns(0, a.KVRank))
	c.Copy(turned, both.Columns(a.KVRank, a.KVRank+a.Rope))
	c.Free(both)
	m.rotate(c, turned, 1, false)
	in, s.kvStats = m.kvNorm.forward(c, s.latent)
	projected = c.alloc(m.kvb.out)
	m.kvb.forward(c, projected, in)
	c.Free(in)
	s.k, s.v = m.heads(c, a.width()), m.heads(c, a.Value)
	m.spread(c, s.k, s.v, projected, false)
	c.Free(projected)
	for h := range m.attn.spec.heads {
		c.Copy(m.shared(s.k, h), turned)
	}
	c.Free(turned)
}

// shared returns the channels with rotary positions of a head of keys.
func (m *latentMixer) shared(k tensorops.Tensor, head int) tensorops.Tensor {
	at := head * m.spec.headWidth()
	return k.Columns(at, at+m.spec.Rope)
}

// values returns the channels of values of whole heads: the input of the output projection. It owns o.
func (m *latentMixer) values(c *pass, o tensorops.Tensor) tensorops.Tensor {
	if m.spec.Value == m.spec.headWidth() {
		return o
	}
	y := c.alloc(m.attn.spec.heads * m.spec.Value)
	c.Copy(m.byHead(y), m.byHead(o).Columns(0, m.spec.Value))
	c.Free(o)
	return y
}

// padded returns values as whole heads, in new memory unless they are that.
func (m *latentMixer) padded(c *pass, o tensorops.Tensor) tensorops.Tensor {
	if m.spec.Value == m.spec.headWidth() {
		return o
	}
	y := m.heads(c, m.spec.Value)
	c.Copy(m.byHead(y).Columns(0, m.spec.Value), m.byHead(o))
	return y
}

func (m *latentMixer) forward(c *pass, st mixerState, n tensorops.Tensor) tensorops.Tensor {
	s := st.(*latentState)
	m.make(c, s, n)
	o := m.attn.attended(c)
	s.lse = c.Alloc(tensorops.Float32, c.mb.Sequences, m.attn.spec.heads, c.mb.Positions)
	m.attn.attend(c, o, s.q, s.k, s.v, s.lse)
	return m.values(c, o)
}

func (m *latentMixer) inputGrad(c *pass, st mixerState, x, o, do tensorops.Tensor) tensorops.Tensor {
	s, a := st.(*latentState), m.spec
	whole, dwhole := m.padded(c, o), m.padded(c, do)
	dq, dk, dv := c.AllocLike(s.q), c.AllocLike(s.k), c.AllocLike(s.v)
	m.attn.gradOf(c, &s.attentionState, dq, dk, dv, dwhole, s.q, s.k, s.v, whole)
	if whole != o {
		free(c.List, &whole, &dwhole)
	}
	c.Free(do)

	m.rotate(c, dq, m.attn.spec.heads, true)
	s.dqb = c.alloc(m.q.out)
	m.arrange(c, dq, s.dqb, true)
	c.Free(dq)
	s.dkvb = c.alloc(m.kvb.out)
	m.spread(c, dk, dv, s.dkvb, true)
	c.Free(dv)
	turned := m.sharedGrad(c, dk)
	c.Free(dk)
	m.rotate(c, turned, 1, true)

	s.dkvn, s.dkva = c.innerLike(s.latent), c.alloc(m.kva.out)
	m.kvb.inputGrad(c, s.dkvn, s.dkvb, false)
	dlatent := c.AllocLike(s.latent)
	m.kvNorm.inputGrad(c, dlatent, s.dkvn, s.latent, s.kvStats, tensorops.Tensor{})
	c.Copy(s.dkva.Columns(0, a.KVRank), dlatent)
	c.Copy(s.dkva.Columns(a.KVRank, a.KVRank+a.Rope), turned)
	free(c.List, &dlatent, &turned)

	dn := c.sumOf(x, 2)
	if a.QRank > 0 {
		s.dqn, s.dqa = c.innerLike(s.qa), c.AllocLike(s.qa)
		m.q.inputGrad(c, s.dqn, s.dqb, false)
		m.qNorm.inputGrad(c, s.dqa, s.dqn, s.qa, s.qStats, tensorops.Tensor{})
		m.qa.inputGrad(c, dn, s.dqa, false)
	} else {
		m.q.inputGrad(c, dn, s.dqb, false)
	}
	m.kva.inputGrad(c, dn, s.dkva, true)
	return dn
}

// sharedGrad returns the sum over the heads, in their order, of the gradients of the channels that all share.
func (m *latentMixer) sharedGrad(c *pass, dk tensorops.Tensor) tensorops.Tensor {
	sum, one := c.Alloc(tensorops.Float32, c.rows(), m.spec.Rope), c.Alloc(tensorops.Float32, c.rows(), m.spec.Rope)
	c.Copy(sum, m.shared(dk, 0))
	for h := 1; h < m.attn.spec.heads; h++ {
		c.Copy(one, m.shared(dk, h))
		c.Add(sum, sum, one)
	}
	c.Free(one)
	return sum
}

func (m *latentMixer) weightGrad(c *pass, st mixerState, n tensorops.Tensor) {
	s := st.(*latentState)
	if m.spec.QRank > 0 {
		m.qa.weightGrad(c, n, s.dqa)
	} else {
		m.q.weightGrad(c, n, s.dqb)
	}
	m.kva.weightGrad(c, n, s.dkva)
}

func (m *latentMixer) otherWeightGrad(c *pass, st mixerState) {
	s := st.(*latentState)
	if m.spec.QRank > 0 {
		in := m.qNorm.recompute(c, s.qa)
		m.q.weightGrad(c, in, s.dqb)
		c.Free(in)
		m.qNorm.weightGrad(c, s.dqn, s.qa, s.qStats)
	}
	in := m.kvNorm.recompute(c, s.latent)
	m.kvb.weightGrad(c, in, s.dkvb)
	c.Free(in)
	m.kvNorm.weightGrad(c, s.dkvn, s.latent, s.kvStats)
}

func (*latentMixer) afterInputGrad(c *pass, st mixerState) {
	s := st.(*latentState)
	free(c.List, &s.q, &s.k, &s.v, &s.lse)
}

// newCache allocates whole keys and values, not the latent vectors that they are computed from, which would take less memory.
func (m *latentMixer) newCache(l *tensorops.List, dtype tensorops.DType, room int) mixerCache {
	return m.attn.newCache(l, dtype, room)
}

func (m *latentMixer) decode(c *pass, caches []mixerCache, n tensorops.Tensor) tensorops.Tensor {
	var s latentState
	m.make(c, &s, n)
	o := m.attn.attended(c)
	m.attn.decodeRuns(c, caches, o, s.q, s.k, s.v)
	s.drop(c.List)
	return m.values(c, o)
}
