package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// What a pass does together with the other ranks of a tensor-parallel group. Without a group these
// are the operations of a stage alone.

func (c *pass) tensor() TensorParallel { return c.stage.opts.Tensor }

// sequence reports whether this rank has only some positions of the residual stream.
func (c *pass) sequence() bool { return c.tensor().Sequence && c.tensor().size() > 1 }

// positions returns the number of positions of each sequence that the residual stream has on this
// rank, starting at firstPosition.
func (c *pass) positions() int {
	return c.stage.edgePositions(c.mb)
}

func (s *Stage) edgePositions(mb *Microbatch) int {
	if t := s.opts.Tensor; t.Sequence {
		return mb.Positions / t.size()
	}
	return mb.Positions
}

func (c *pass) firstPosition() int {
	if c.sequence() {
		return c.positions() * c.tensor().rank()
	}
	return 0
}

// localRows returns the number of rows of the residual stream on this rank; rows returns that of
// all ranks.
func (c *pass) localRows() int { return c.mb.Sequences * c.positions() }

// sharedPositions reduces a microbatch to this rank's positions. It refuses positions that the
// ranks can't share equally.
type sharedPositions struct {
	noHook
	stage *Stage
}

func (h sharedPositions) share(f *inFlight) error {
	own, err := h.stage.opts.Context.part(&f.mb, f)
	if err != nil {
		return err
	}
	f.mb = own
	switch t := h.stage.opts.Tensor; {
	case f.mb.Positions%t.size() == 0:
	case t.Sequence:
		return fmt.Errorf("%w: microbatch %d has %d positions, which sequence parallelism of %d cannot share equally", ErrInput, f.mb.Index,
			f.mb.Positions, t.size())
	case h.stage.opts.wholeExperts():
		return fmt.Errorf("%w: microbatch %d has %d positions, which a tensor group of %d ranks with whole experts cannot route in equal "+
			"parts", ErrInput, f.mb.Index, f.mb.Positions, t.size())
	}
	return nil
}

// total turns a part of a sum, over all positions, into this rank's positions of the sum. It owns
// t.
func (c *pass) total(t tensorops.Tensor) tensorops.Tensor {
	switch g := c.tensor().Group; {
	case c.tensor().size() <= 1:
		return t
	case !c.sequence():
		c.AllReduce(t, tensorops.Sum, g)
		return t
	default:
		y := c.ofPositions(t, c.positions())
		c.ReduceScatter(y, t, 1, tensorops.Sum, g)
		c.Free(t)
		return y
	}
}

// beginCollective starts a collective that runs beside the following operations, and returns its number for AwaitOne.
func (c *pass) beginCollective(a tensorops.CollectiveArgs) (number int) {
	number = c.Begin(a)
	if c.stage.opts.NoOverlap {
		c.AwaitOne(number)
	}
	return number
}

// totalBeside is total and, meanwhile, the operations that record records, which must not need its
// result.
func (c *pass) totalBeside(t tensorops.Tensor, record func()) tensorops.Tensor {
	if c.tensor().size() <= 1 || !c.weightsToo {
		return c.total(t)
	}
	a := tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: t, Src: t, How: tensorops.Sum, Group: c.tensor().Group}
	if c.sequence() {
		a.What, a.Dim, a.Dst = tensorops.ReduceScatter, 1, c.ofPositions(t, c.positions())
	}
	number := c.beginCollective(a)
	record()
	c.AwaitOne(number) // the sums of gradients over replicas go on
	if c.sequence() {
		c.Free(t)
	}
	return a.Dst
}

// gatherAhead starts gathering a norm's recomputed output for a weight gradient that comes soon,
// beside the following operations. Each call needs a wait.
func (c *pass) gatherAhead(m *norm, x tensorops.Tensor) (a ahead) {
	if !c.sequence() || !c.weightsToo {
		return ahead{}
	}
	a.part = m.recompute(c, x)
	a.all = c.ofPositions(a.part, c.mb.Positions)
	a.number = c.beginCollective(tensorops.CollectiveArgs{What: tensorops.AllGather, Dst: a.all, Src: a.part, Dim: 1, Group: c.tensor().Group})
	return a
}

// ahead is a tensor being gathered; invalid if none is.
type ahead struct {
	part, all tensorops.Tensor
	number    int
}

// wait returns all positions, or an invalid tensor.
func (a *ahead) wait(c *pass) tensorops.Tensor {
	if a.part.Valid() {
		c.AwaitOne(a.number)
		c.Free(a.part)
	}
	return a.all
}

// gathered turns this rank's positions into those of all ranks. It owns t.
func (c *pass) gathered(t tensorops.Tensor) tensorops.Tensor {
	if !c.sequence() {
		return t
	}
	all := c.gather(t)
	c.Free(t)
	return all
}

// gather returns a copy of t with the positions of all ranks.
func (c *pass) gather(t tensorops.Tensor) tensorops.Tensor {
	all := c.ofPositions(t, c.mb.Positions)
	c.AllGather(all, t, 1, c.tensor().Group)
	return all
}

// ofPositions allocates a tensor like t, which is [B, …, C], for another number of positions.
func (c *pass) ofPositions(t tensorops.Tensor, positions int) tensorops.Tensor {
	if !t.Valid() { // after an error
		return tensorops.Tensor{}
	}
	return c.Alloc(t.DType(), t.Dim(0), positions, t.Cols())
}

// dropout records y = skip + x with some elements of x dropped, at a site of the residual stream.
// An element's random bits are those of its sequence, position and feature.
func (c *pass) dropout(y, x, skip tensorops.Tensor, s site) {
	c.masked(y, x, skip, s, c.positions(), c.residualRuns(), c.Dropout)
}

// jitter records x with random factors, plus skip, for the positions that this rank routes: see tensorops.List.Jitter.
func (c *pass) jitter(y, x, skip tensorops.Tensor, s site) {
	from, to := c.routedPositions()
	c.masked(y, x, skip, s, to-from, c.routedRuns(), c.Jitter)
}

// masked records an operation with the random bits of a site, on tensors with some positions of each sequence, whose runs are given.
func (c *pass) masked(y, x, skip tensorops.Tensor, s site, positions int, runs []run, record func(y, x, skip tensorops.Tensor,
	m tensorops.Mask)) {
	width, places := y.Cols(), c.places()
	m := c.mask(s, places*width)
	if m.P == 0 || len(runs) == 1 && positions == c.mb.Positions && (c.mb.Sequences == 1 || c.mb.Positions == places) {
		record(y, x, skip, m)
		return
	}
	for b := range c.mb.Sequences {
		for _, r := range runs {
			lo, hi := b*positions+r.lo, b*positions+r.hi
			part := m
			part.First += uint64((b*places + r.first) * width)
			record(y.RowRange(lo, hi), x.RowRange(lo, hi), skip.RowRange(lo, hi), part)
		}
	}
}

// eachAttention calls f for one attention over all sequences, or for several over some of them: the
// random bits of dropout are not contiguous if the heads are split.
func (c *pass) eachAttention(heads int, f func(first, last int, a tensorops.AttentionOpts), a tensorops.AttentionOpts) {
	t := c.tensor()
	if t.size() <= 1 || a.Mask.P == 0 {
		f(0, a.Batch, a)
		return
	}
	ofHead, batch := uint64(c.places())*uint64(c.places()), a.Batch
	first := a.Mask.First
	a.Batch = 1
	for b := range batch {
		a.Mask.First = first + uint64(b*heads+t.rank()*a.Heads)*ofHead
		f(b, b+1, a)
	}
}

// sequences are the sequences [first, last) of all that a tensor holds.
type sequences struct{ first, last, all int }

// rows returns a tensor's rows of these sequences; the tensor itself if they are all.
func (s sequences) rows(t tensorops.Tensor) tensorops.Tensor {
	if s.last-s.first == s.all || !t.Valid() {
		return t
	}
	each := t.Rows() / s.all
	return t.RowRange(s.first*each, s.last*each)
}

// vocabRows are the tokens of a microbatch whose rows of a vocabulary's weight are on this rank:
// the rows on this rank, and the tokens' positions in the microbatch.
type vocabRows struct{ ids, at []int32 }

// find selects them.
func (v *vocabRows) find(c *pass, w use, tokens []int32) {
	v.ids, v.at = v.ids[:0], v.at[:0]
	from, to := w.param.Slice.From, w.param.Slice.To
	for i, token := range tokens {
		id := int(token)
		if id < 0 || id >= w.param.Whole[0] {
			c.Fail(fmt.Errorf("%w: row %d holds token %d, but the vocabulary has %d tokens", tensorops.ErrToken, i, id, w.param.Whole[0]))
			return
		}
		if id >= from && id < to {
			v.ids, v.at = append(v.ids, int32(id-from)), append(v.at, int32(i))
		}
	}
}

// upload copies row numbers to the device.
func (c *pass) upload(rows []int32) tensorops.Tensor {
	t := c.Alloc(tensorops.Int32, len(rows))
	c.Upload(t, tensorops.HostBytes(rows))
	return t
}

// embed returns the rows of a vocabulary's weight for the tokens, [B, T, C]. ids are the same
// tokens on the device. If the vocabulary is split, v has those of this rank.
func (c *pass) embed(w use, ids tensorops.Tensor, v *vocabRows) tensorops.Tensor {
	weight := c.weight(w)
	if c.tensor().size() <= 1 {
		y := c.Alloc(c.stage.opts.Residual, c.mb.Sequences, c.mb.Positions, weight.Cols())
		c.Embed(y, weight, ids)
		return y
	}
	sum := c.Alloc(tensorops.Float32, c.mb.Sequences, c.mb.Positions, weight.Cols())
	c.Fill(sum, 0)
	// Memory for all rows, so that the memory of a step does not depend on its tokens.
	rows := c.Alloc(tensorops.Float32, c.rows(), weight.Cols())
	if n := len(v.ids); n > 0 {
		here, at := c.upload(v.ids), c.upload(v.at)
		c.Embed(rows.RowRange(0, n), weight, here)
		c.EmbedGrad(sum.Matrix(), rows.RowRange(0, n), at)
		free(c.List, &here, &at)
	}
	c.Free(rows)
	sum = c.total(sum)
	if c.stage.opts.Residual == tensorops.Float32 {
		return sum
	}
	y := c.hidden(weight.Cols())
	c.Copy(y, sum)
	c.Free(sum)
	return y
}

// embedIDs is embed for ids that are not on the device.
func (c *pass) embedIDs(w use, tokens []int32, v *vocabRows) tensorops.Tensor {
	if c.tensor().size() > 1 {
		return c.embed(w, tensorops.Tensor{}, v)
	}
	ids := c.ids(tokens)
	y := c.embed(w, ids, v)
	c.Free(ids)
	return y
}

// hidden allocates a tensor for one depth of the residual stream.
func (c *pass) hidden(width int) tensorops.Tensor {
	return c.Alloc(c.stage.opts.Residual, c.mb.Sequences, c.positions(), width)
}

// embedGrad adds the gradient of embed, for all positions, to rows of grad: those in v, or slots
// instead.
func (c *pass) embedGrad(grad, dy tensorops.Tensor, v *vocabRows, slots []int32) {
	rows := c.Alloc(tensorops.Float32, c.rows(), dy.Cols())
	if n := len(v.ids); n > 0 {
		to, at := c.upload(slots), c.upload(v.at)
		c.Embed(rows.RowRange(0, n), dy.Matrix(), at)
		c.EmbedGrad(grad, rows.RowRange(0, n), to)
		free(c.List, &to, &at)
	}
	c.Free(rows)
}
