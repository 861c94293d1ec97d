package stages

import "github.com/troupe-ml/troupe/tensorops"

// Attention where the ranks of a context group have some positions each: keys and values go round, while each rank
// computes with those that it has.

// pair is an attention of half of a rank's positions over those keys of a rank which they see.
type pair struct {
	half     int  // of the queries: one of the rank's two blocks
	keys     int  // so many, from the first on
	whole    bool // they all come before the queries
	onto     bool // the queries have been over other keys before
	sameKeys bool // another pair of this turn has been over them
}

// pairs are what a rank computes when it has the keys of another, or its own.
func pairs(rank, from, positions int) []pair {
	each := positions / 2
	switch {
	case from == rank: // the blocks follow each other, though others lie between them
		return []pair{{half: 1, keys: 2 * each}, {half: 0, keys: each, sameKeys: true}}
	case from < rank: // whose first block is before both, and whose second behind both
		return []pair{{half: 0, keys: each, whole: true, onto: true}, {half: 1, keys: each, whole: true, onto: true, sameKeys: true}}
	default: // whose blocks are both between this rank's
		return []pair{{half: 1, keys: 2 * each, whole: true, onto: true}}
	}
}

// halves views a tensor of a rank's positions: its rows of a sequence's half, or of a sequence's first keys.
type halves struct{ positions int }

func (h halves) queries(t tensorops.Tensor, sequence int, p pair) tensorops.Tensor {
	first := sequence*h.positions + p.half*h.positions/2
	return t.RowRange(first, first+h.positions/2)
}

func (h halves) keys(t tensorops.Tensor, sequence int, p pair) tensorops.Tensor {
	return t.RowRange(sequence*h.positions, sequence*h.positions+p.keys)
}

// sums are the softmax's sums of a pair, in a tensor [B, 2, H, T/2].
func (h halves) sums(t tensorops.Tensor, sequence int, p pair) tensorops.Tensor {
	if !t.Valid() {
		return t
	}
	rows := 2 * t.Dim(0)
	return t.View(rows, t.Len()/rows).RowRange(2*sequence+p.half, 2*sequence+p.half+1)
}

// keysAndValues takes copies of k and v that can be sent, one after the other.
func (b *block) keysAndValues(c *pass, k, v tensorops.Tensor) tensorops.Tensor {
	kv := c.Alloc(c.inner(), 2, c.mb.Sequences, c.mb.Positions, b.cfg.KVWidth())
	if kv.Valid() {
		both := c.ofBoth(kv)
		c.Copy(both[0], k.Matrix())
		c.Copy(both[1], v.Matrix())
	}
	return kv
}

// ofBoth are the halves of keysAndValues, or of their gradients.
func (c *pass) ofBoth(kv tensorops.Tensor) [2]tensorops.Tensor {
	if !kv.Valid() {
		return [2]tensorops.Tensor{}
	}
	n := kv.Rows() / 2
	return [2]tensorops.Tensor{kv.RowRange(0, n), kv.RowRange(n, 2*n)}
}

// sendOn begins to send a tensor to the next rank of the context group, and takes memory for what comes from the one before.
func (c *pass) sendOn(t tensorops.Tensor) (arriving tensorops.Tensor) {
	arriving = c.AllocLike(t)
	c.begin(tensorops.CollectiveArgs{What: tensorops.RingForward, Dst: arriving, Src: t, Group: c.stage.opts.Context.Group})
	return arriving
}

// ringAttention records the attention of this rank's queries over all keys, into s.o and s.lse.
func (b *block) ringAttention(c *pass, s *blockState, q, k, v tensorops.Tensor) {
	group, of := c.stage.opts.Context, halves{c.mb.Positions}
	n, rank := group.size(), group.rank()
	o := s.o
	if o.DType() != tensorops.Float32 { // it is added to n times
		o = c.Alloc(tensorops.Float32, s.o.Shape()...)
	}
	kv := b.keysAndValues(c, k, v)
	a := b.attention(c)
	a.Batch = 1
	for turn := range n {
		var next tensorops.Tensor
		if turn+1 < n {
			next = c.sendOn(kv)
		}
		both := c.ofBoth(kv)
		for _, p := range pairs(rank, (rank-turn+n)%n, c.mb.Positions) {
			a.Whole, a.Onto = p.whole, p.onto
			for i := range c.mb.Sequences {
				c.Attention(of.queries(o, i, p), of.queries(q, i, p), of.keys(both[0], i, p), of.keys(both[1], i, p), of.sums(s.lse, i, p), a)
			}
		}
		if next.Valid() {
			c.Await()
			c.Free(kv)
			kv = next
		}
	}
	c.Free(kv)
	if !o.Same(s.o) {
		c.Copy(s.o, o)
		c.Free(o)
	}
}

// ringGrad records the gradients of ringAttention. Those of keys and values go round behind them, and each rank adds its
// part: in the order in which they meet it.
func (b *block) ringGrad(c *pass, s *blockState, dq, dk, dv, do, q, k, v tensorops.Tensor) {
	group, of := c.stage.opts.Context, halves{c.mb.Positions}
	n, rank := group.size(), group.rank()
	kv := b.keysAndValues(c, k, v)
	sum := c.Alloc(tensorops.Float32, c.mb.Sequences, c.mb.Positions, b.cfg.QueryWidth()) // of dq
	a := b.attention(c)
	a.Batch = 1
	var sent, arriving tensorops.Tensor // gradients of keys and values
	for turn := range n {
		var next tensorops.Tensor
		if turn+1 < n {
			next = c.sendOn(kv)
		}
		all := pairs(rank, (rank-turn+n)%n, c.mb.Positions)
		part := c.Alloc(tensorops.Float32, kv.Shape()...)
		keys, grads := c.ofBoth(kv), c.ofBoth(part)
		for _, p := range all {
			a.Whole = p.whole
			for i := range c.mb.Sequences {
				to := [3]tensorops.Tensor{of.queries(sum, i, p), of.keys(grads[0], i, p), of.keys(grads[1], i, p)}
				adds := [3]bool{p.onto, p.sameKeys, p.sameKeys}
				one := to
				for j, t := range to {
					if adds[j] {
						one[j] = c.AllocLike(t)
					}
				}
				c.AttentionGrad(one[0], one[1], one[2], of.queries(do, i, p), of.queries(q, i, p), of.keys(keys[0], i, p), of.keys(keys[1], i, p),
					of.queries(s.o, i, p), of.sums(s.lse, i, p), a)
				for j, t := range to {
					if adds[j] {
						c.Add(t, t, one[j])
						c.Free(one[j])
					}
				}
			}
		}
		c.Await()
		if turn == 0 {
			arriving = part
		} else {
			got := c.ofBoth(arriving)
			for i := range c.mb.Sequences {
				for j, t := range got {
					c.Add(of.keys(t, i, all[0]), of.keys(t, i, all[0]), of.keys(grads[j], i, all[0]))
				}
			}
			free(c.List, &sent, &part)
		}
		if next.Valid() {
			c.Free(kv)
			kv = next
		}
		sent = arriving
		arriving = c.sendOn(sent)
	}
	c.Await()
	free(c.List, &sent, &kv)
	home := c.ofBoth(arriving)
	c.Copy(dq.Matrix(), sum.Matrix())
	c.Copy(dk.Matrix(), home[0])
	c.Copy(dv.Matrix(), home[1])
	free(c.List, &sum, &arriving)
}
