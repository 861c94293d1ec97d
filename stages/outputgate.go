package stages

import "github.com/troupe-ml/troupe/tensorops"

// The output gate of attention. The projection to queries has two parts for each head, its queries and
// its gate: attention's output is multiplied by σ of the latter.

var outputGate = tensorops.GateOpts{Act: tensorops.Sigmoid}

// splitGate returns the queries and the gates of a projection in their own memory, and frees it.
// Without an output gate it returns the projection.
func (b *attentionMixer) splitGate(c *pass, both tensorops.Tensor) (q, gate tensorops.Tensor) {
	if !b.spec.outputGate || !both.Valid() {
		return both, tensorops.Tensor{}
	}
	q = c.Alloc(both.DType(), c.mb.Sequences, c.mb.Positions, b.spec.queryWidth())
	gate = c.AllocLike(q)
	first, second := b.gateParts(both)
	c.Copy(b.headRows(q), first)
	c.Copy(b.headRows(gate), second)
	c.Free(both)
	return q, gate
}

// joinGate returns what splitGate has split, and frees the parts.
func (b *attentionMixer) joinGate(c *pass, q, gate tensorops.Tensor) tensorops.Tensor {
	if !b.spec.outputGate || !q.Valid() {
		return q
	}
	both := c.Alloc(q.DType(), c.mb.Sequences, c.mb.Positions, b.spec.projectedQueries())
	if both.Valid() {
		first, second := b.gateParts(both)
		c.Copy(first, b.headRows(q))
		c.Copy(second, b.headRows(gate))
	}
	free(c.List, &q, &gate)
	return both
}

// gateParts returns views of the queries and of the gates, with a row for each head of a position.
func (b *attentionMixer) gateParts(both tensorops.Tensor) (q, gate tensorops.Tensor) {
	d := b.spec.headDim
	rows := both.View(both.Len()/(2*d), 2*d)
	return rows.Columns(0, d), rows.Columns(d, 2*d)
}

func (b *attentionMixer) headRows(t tensorops.Tensor) tensorops.Tensor {
	d := b.spec.headDim
	return t.View(t.Len()/d, d)
}
