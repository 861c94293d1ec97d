package stages

import (
	"cmp"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// Attention if the ranks of a context group have some positions each. Keys and values travel around
// the ring while each rank computes with those that it has.

// pair is the attention of one of a rank's two query blocks to one of a rank's two key blocks.
type pair struct {
	queries, keys int    // which of the two blocks
	blocks        [2]int // block numbers in the sequence: the queries', the keys'
	onto          bool   // the queries have already attended to other keys
	sameKeys      bool   // other queries have already attended to these keys in this turn
}

// whole reports whether all keys come before the queries.
func (p pair) whole() bool { return p.blocks[1] < p.blocks[0] }

// distance is the number of blocks from the keys to the queries.
func (p pair) distance() int { return p.blocks[0] - p.blocks[1] }

// outside reports whether a window, 0 for none, hides all keys of the pair from all its queries, where a
// block has each positions.
func (p pair) outside(window, each int) bool {
	return window > 0 && (p.distance()-1)*each+2 > window
}

// pairs returns what a rank computes with the keys of a rank. With its own keys these are the pairs
// of a causal triangle. With those of any other rank they are two of the four pairs. Under a window
// those pairs are missing of which it hides all. Under a window, or if documents are packed, the pairs of a
// block with itself come first, in which every query sees a key.
func pairs(group ContextParallel, from, window, each int, packed bool) (all []pair) {
	own, other := positionBlocks(group.rank(), group.size()), positionBlocks(from, group.size())
	for k, b := range other {
		for q, a := range own {
			if p := (pair{queries: q, keys: k, blocks: [2]int{a, b}}); b <= a && !p.outside(window, each) {
				all = append(all, p)
			}
		}
	}
	if window > 0 || packed {
		slices.SortStableFunc(all, func(a, b pair) int { return cmp.Compare(a.distance(), b.distance()) })
	}
	attended, used := [2]bool{from != group.rank(), from != group.rank()}, [2]bool{}
	for i := range all {
		p := &all[i]
		p.onto, p.sameKeys = attended[p.queries], used[p.keys]
		attended[p.queries], used[p.keys] = true, true
	}
	return all
}

// pairs returns those of the block's attention with the keys of a rank.
func (b *attentionMixer) pairs(c *pass, from int) []pair {
	return pairs(c.stage.opts.Context, from, b.spec.window, c.mb.Positions/2, c.starts.Valid())
}

// halves returns views of the halves of a rank's positions.
type halves struct{ positions int }

// of returns the rows of a sequence's half.
func (h halves) of(t tensorops.Tensor, sequence, half int) tensorops.Tensor {
	first := sequence*h.positions + half*h.positions/2
	return t.RowRange(first, first+h.positions/2)
}

// sums returns the softmax's sums of a half, in a tensor [B, 2, H, T/2].
func (h halves) sums(t tensorops.Tensor, sequence, half int) tensorops.Tensor {
	if !t.Valid() {
		return t
	}
	rows := 2 * t.Dim(0)
	return t.View(rows, t.Len()/rows).RowRange(2*sequence+half, 2*sequence+half+1)
}

// ofPair returns the options of a pair's attention in one sequence. The random bits of its dropout
// are those of its place in the attention of whole sequences by all heads.
func (b *attentionMixer) ofPair(c *pass, sequence int, p pair) tensorops.AttentionOpts {
	a, each := b.attention(c), c.mb.Positions/2
	a.Batch, a.Whole, a.Onto, a.Starts = 1, p.whole(), p.onto, c.startsOf(sequence, p)
	if a.Whole {
		a.Before = p.distance() * each
	}
	if a.Mask.P > 0 {
		head := (c.mb.FirstSequence+sequence)*b.heads + c.tensor().rank()*b.spec.heads
		a.Mask.First = (uint64(head)*uint64(a.Of)+uint64(p.blocks[0]*each))*uint64(a.Of) + uint64(p.blocks[1]*each)
	}
	return a
}

// keysAndValues copies k and v, one after the other, so that they can be sent.
func (b *attentionMixer) keysAndValues(c *pass, k, v tensorops.Tensor) tensorops.Tensor {
	kv := c.Alloc(c.inner(), 2, c.mb.Sequences, c.mb.Positions, b.spec.kvWidth())
	if kv.Valid() {
		both := c.ofBoth(kv)
		c.Copy(both[0], k.Matrix())
		c.Copy(both[1], v.Matrix())
	}
	return kv
}

// ofBoth returns the halves of keysAndValues, or of their gradients.
func (c *pass) ofBoth(kv tensorops.Tensor) [2]tensorops.Tensor {
	if !kv.Valid() {
		return [2]tensorops.Tensor{}
	}
	n := kv.Rows() / 2
	return [2]tensorops.Tensor{kv.RowRange(0, n), kv.RowRange(n, 2*n)}
}

// sendOn starts sending a tensor to the next rank of the context group, and allocates memory for
// the tensor from the previous rank. It returns a number for AwaitOne: other transfers of the list, such as tokens of experts, continue.
func (c *pass) sendOn(t tensorops.Tensor) (arriving tensorops.Tensor, number int) {
	arriving = c.AllocLike(t)
	return arriving, c.beginCollective(tensorops.CollectiveArgs{What: tensorops.RingForward, Dst: arriving, Src: t,
		Group: c.stage.opts.Context.Group})
}

// ringAttention records the attention of this rank's queries over all keys, into out and s.lse.
func (b *attentionMixer) ringAttention(c *pass, s *attentionState, out, q, k, v tensorops.Tensor) {
	group, of := c.stage.opts.Context, halves{c.mb.Positions}
	n, rank := group.size(), group.rank()
	o := out
	if o.DType() != tensorops.Float32 { // it is added to n times
		o = c.Alloc(tensorops.Float32, out.Shape()...)
	}
	kv := b.keysAndValues(c, k, v)
	for turn := range n {
		var next tensorops.Tensor
		var number int
		if turn+1 < n {
			next, number = c.sendOn(kv)
		}
		both := c.ofBoth(kv)
		for _, p := range b.pairs(c, (rank-turn+n)%n) {
			for i := range c.mb.Sequences {
				c.Attention(of.of(o, i, p.queries), of.of(q, i, p.queries), of.of(both[0], i, p.keys), of.of(both[1], i, p.keys),
					of.sums(s.lse, i, p.queries), b.ofPair(c, i, p))
			}
		}
		if next.Valid() {
			c.AwaitOne(number)
			c.Free(kv)
			kv = next
		}
	}
	c.Free(kv)
	if !o.Same(out) {
		c.Copy(out, o)
		c.Free(o)
	}
}

// ringGrad records the gradients of ringAttention. The gradients of keys and values travel around
// the ring after them, and each rank adds its part when they arrive.
func (b *attentionMixer) ringGrad(c *pass, s *attentionState, dq, dk, dv, do, q, k, v, o tensorops.Tensor) {
	group, of := c.stage.opts.Context, halves{c.mb.Positions}
	n, rank := group.size(), group.rank()
	kv := b.keysAndValues(c, k, v)
	sum := c.Alloc(tensorops.Float32, c.mb.Sequences, c.mb.Positions, b.spec.queryWidth()) // of dq
	var sent, arriving tensorops.Tensor                                                    // gradients of keys and values
	var number int                                                                         // of their transfer
	for turn := range n {
		var next tensorops.Tensor
		var ofNext int
		if turn+1 < n {
			next, ofNext = c.sendOn(kv)
		}
		all := b.pairs(c, (rank-turn+n)%n)
		part := c.Alloc(tensorops.Float32, kv.Shape()...)
		keys, grads := c.ofBoth(kv), c.ofBoth(part)
		for _, p := range all {
			for i := range c.mb.Sequences {
				to := [3]tensorops.Tensor{of.of(sum, i, p.queries), of.of(grads[0], i, p.keys), of.of(grads[1], i, p.keys)}
				adds := [3]bool{p.onto, p.sameKeys, p.sameKeys}
				one := to
				for j, t := range to {
					if adds[j] {
						one[j] = c.AllocLike(t)
					}
				}
				c.AttentionGrad(one[0], one[1], one[2], of.of(do, i, p.queries), of.of(q, i, p.queries), of.of(keys[0], i, p.keys),
					of.of(keys[1], i, p.keys),
					of.of(o, i, p.queries), of.sums(s.lse, i, p.queries), b.ofPair(c, i, p))
				for j, t := range to {
					if adds[j] {
						c.Add(t, t, one[j])
						c.Free(one[j])
					}
				}
			}
		}
		if next.Valid() {
			c.AwaitOne(ofNext)
		}
		if turn == 0 {
			arriving = part
		} else {
			c.AwaitOne(number)
			got := c.ofBoth(arriving)
			for _, p := range all {
				for i := range c.mb.Sequences {
					for j, t := range got {
						if half := of.of(t, i, p.keys); !p.sameKeys {
							c.Add(half, half, of.of(grads[j], i, p.keys))
						}
					}
				}
			}
			free(c.List, &sent, &part)
		}
		if next.Valid() {
			c.Free(kv)
			kv = next
		}
		sent = arriving
		arriving, number = c.sendOn(sent)
	}
	c.AwaitOne(number)
	free(c.List, &sent, &kv)
	home := c.ofBoth(arriving)
	c.Copy(dq.Matrix(), sum.Matrix())
	c.Copy(dk.Matrix(), home[0])
	c.Copy(dv.Matrix(), home[1])
	free(c.List, &sum, &arriving)
}
