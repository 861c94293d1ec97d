package stages

import "github.com/troupe-ml/troupe/tensorops"

// Layers that use the keys and values of an earlier layer (spec.shares), and the layer that keeps them (spec.keeps). The keys are
// normalized and rotated, the values normalized.

// sharedKV is what attention keeps of a microbatch for keys and values that layers share.
type sharedKV struct {
	given  [2]tensorops.Tensor // of an earlier layer; not owned
	dgiven [2]tensorops.Tensor // their gradients
	kept   [2]tensorops.Tensor // of this layer, until they are passed on
	dkept  [2]tensorops.Tensor // their gradients from later layers
}

func (s *sharedKV) drop(l *tensorops.List) {
	s.given = [2]tensorops.Tensor{}
	for _, pair := range []*[2]tensorops.Tensor{&s.dgiven, &s.kept, &s.dkept} {
		free(l, &pair[0], &pair[1])
	}
}

// addKept adds the gradients from later layers to those of the layer's own attention.
func (s *sharedKV) addKept(c *pass, dk, dv tensorops.Tensor) {
	for i, d := range []tensorops.Tensor{dk, dv} {
		if s.dkept[i].Valid() {
			c.Add(d, d, s.dkept[i])
		}
	}
	free(c.List, &s.dkept[0], &s.dkept[1])
}

// shared returns the state of a layer whose attention keeps or shares keys and values.
func (s *blockState) shared() *sharedKV { return &s.mixer.(*attentionState).shared }

// give gives attention the keys and values of an earlier layer.
func (b *block) give(s *blockState) {
	if b.spec.shares {
		s.shared().given = s.carried.given
	}
}

// dropKept frees keys and values that were computed once more and that later layers have.
func (s *blockState) dropKept(l *tensorops.List) {
	if m, ok := s.mixer.(*attentionState); ok {
		free(l, &m.shared.kept[0], &m.shared.kept[1])
	}
}

// sharedGrad records the gradients of the projection's output, and of the keys and values of an earlier layer.
func (b *attentionMixer) sharedGrad(c *pass, s *attentionState, o, do tensorops.Tensor) {
	q, dq := s.qkv[0], s.dqkv[0]
	nq, _, stats := b.normQK(c, q, tensorops.Tensor{})
	c.Free(stats[0])
	b.rotate(c, nq, tensorops.Tensor{}, false)
	dnq := c.AllocLike(dq)
	for i, t := range s.shared.given {
		s.shared.dgiven[i] = c.AllocLike(t)
	}
	b.gradOf(c, s, dnq, s.shared.dgiven[0], s.shared.dgiven[1], do, nq, s.shared.given[0], s.shared.given[1], o)
	c.Free(nq)
	b.rotate(c, dnq, tensorops.Tensor{}, true)
	b.normGrad(c, s, 0, dq, dnq, q)
}

// In generation a layer that keeps its keys and values leaves them in fed, for later layers of the same pass. A ring of a window may have
// overwritten some of them by then: of several new positions the first ones attend to keys that the last ones replace.

// attended are the keys and values to which new positions of a sequence attend, and how.
type attended struct {
	keys, values tensorops.Tensor
	window       int
	whole        bool
	owned        bool // the memory of both belongs to the pass
}

// opts returns the options of an attention to them.
func (t *attended) opts(a tensorops.AttentionOpts) tensorops.AttentionOpts {
	a.Window, a.Whole = t.window, t.whole
	return a
}

// free frees them, unless they are views.
func (t *attended) free(l *tensorops.List) {
	if t.owned {
		free(l, &t.keys, &t.values)
	}
}

// leave keeps the keys and values of a sequence for later layers, or frees them.
func (b *attentionMixer) leave(c *pass, t attended) {
	if !b.spec.keeps {
		t.free(c.List)
		return
	}
	if c.fed.kept == nil {
		c.fed.kept = make(map[int][]attended)
	}
	c.fed.kept[b.spec.source] = append(c.fed.kept[b.spec.source], t)
}

// decodeShared records attention to the keys and values of an earlier layer.
func (b *attentionMixer) decodeShared(c *pass, o, q tensorops.Tensor) {
	kept := c.fed.kept[b.spec.source]
	for i, r := range c.runs() {
		if i < len(kept) { // else after an error
			b.attendTo(c, o.RowRange(r.lo, r.hi), q.RowRange(r.lo, r.hi), &kept[i], r.hi-r.lo)
		}
	}
}

// attendTo records attention of n new positions.
func (b *attentionMixer) attendTo(c *pass, o, q tensorops.Tensor, t *attended, n int) {
	lse := c.Alloc(tensorops.Float32, 1, b.spec.heads, n)
	c.Attention(o, q, t.keys, t.values, lse, t.opts(b.attention(c)))
	if b.spec.sinks {
		c.AttentionSink(o, lse, c.weight(b.sinks), tensorops.AttentionOpts{Batch: 1, Heads: b.spec.heads})
	}
	c.Free(lse)
}

// noCache is the cache of a layer that needs none.
type noCache struct{}

func (noCache) release() {}
