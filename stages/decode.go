package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// Decoder continues one sequence token by token, with a cache of keys and values. It needs a stage
// that holds the whole model. It does not use the layers of multi-token prediction.
type Decoder struct {
	stage  *Stage
	stream tensorops.Stream
	layers []layer
	cache  [][2]tensorops.Tensor // keys and values of each decoder layer: [room, kvWidth]
	room   int                   // capacity of the cache, in positions
	used   int                   // positions in the cache
	logits []float32
}

// NewDecoder allocates a cache for n positions, or for those that the weights support if these are fewer.
// Config.Context does not limit it: that is the context of training. The error is ErrModel if the
// stage does not hold the whole model.
func NewDecoder(s *Stage, positions int) (*Decoder, error) {
	return NewDecoderOn(s, s.stream, positions)
}

// NewDecoderOn is NewDecoder with its own stream on the same device. So several decoders of a stage
// may run at once, as long as its weights do not change.
func NewDecoderOn(s *Stage, stream tensorops.Stream, positions int) (*Decoder, error) {
	if size := s.opts.Tensor.size(); size > 1 {
		return nil, fmt.Errorf("%w: a decoder needs whole layers, but they are split over %d ranks", ErrModel, size)
	}
	c := s.chunks[0]
	if c == nil || len(c.layers) != len(s.model.layers) {
		return nil, fmt.Errorf("%w: a decoder needs all %d layers in chunk 0", ErrModel, len(s.model.layers))
	}
	cfg := s.model.Config
	d := &Decoder{stage: s, stream: stream, layers: c.layers, room: min(positions, cfg.Positions()), logits: make([]float32, cfg.Vocab)}
	l := stream.NewList()
	for range cfg.Layers {
		var kv [2]tensorops.Tensor
		for i := range kv {
			kv[i] = l.Alloc(s.productType(), d.room, cfg.KVWidth())
		}
		d.cache = append(d.cache, kv)
	}
	return d, tensorops.Run(stream, l)
}

// Close frees the cache. No operation of the decoder may be in progress.
func (d *Decoder) Close() {
	for _, kv := range d.cache {
		kv[0].Release()
		kv[1].Release()
	}
	d.cache = nil
}

// Used returns the number of positions in the cache.
func (d *Decoder) Used() int { return d.used }

// Reset empties the cache, for a new sequence.
func (d *Decoder) Reset() { d.used = 0 }

// Next appends tokens to the sequence and returns the logits of the token after the last one, [V].
// They are valid until the next call. The sequence must fit in the cache; otherwise the error is
// ErrInput.
func (d *Decoder) Next(tokens []int32) ([]float32, error) {
	if len(tokens) == 0 || d.used+len(tokens) > d.room {
		return nil, fmt.Errorf("%w: cannot add %d tokens after %d: the cache has room for %d", ErrInput, len(tokens), d.used, d.room)
	}
	l := d.stream.NewList()
	mb := Microbatch{Sequences: 1, Positions: len(tokens), FirstPosition: d.used}
	c := &pass{List: l, stage: d.stage, mb: &mb}
	c.tokens = c.ids(tokens)
	var x tensorops.Tensor
	n := 0
	for _, layer := range d.layers {
		switch layer := layer.(type) {
		case *embedding:
			x = layer.forward(c, nil, x)
			l.Free(c.tokens)
		case *block:
			x = layer.decode(c, x, d.cache[n], d.used)
			n++
		case *head:
			layer.decode(c, x, d.logits)
		}
	}
	if err := tensorops.Run(d.stream, l); err != nil {
		return nil, err
	}
	d.used += len(tokens)
	return d.logits, nil
}

// decode runs the forward for new positions of one sequence: keys and values go to the cache, and
// the queries attend to all of it. It owns x.
func (b *block) decode(c *pass, x tensorops.Tensor, cache [2]tensorops.Tensor, used int) tensorops.Tensor {
	n1, stats := b.norm1.forward(c, x)
	qkv := b.project(c, n1, b.qkv)
	q, k, v := b.parts(qkv)
	q, k, headStats := b.normHeads(c, q, k)
	b.rotate(c, q, k, false)
	all := used + c.mb.Positions
	c.Copy(cache[0].RowRange(used, all), k.Matrix())
	c.Copy(cache[1].RowRange(used, all), v.Matrix())
	o, lse := b.attended(c), c.Alloc(tensorops.Float32, 1, b.cfg.Heads, c.mb.Positions)
	first := 0 // first key that any of the queries attends to
	if b.window > 0 {
		first = max(0, used+1-b.window)
	}
	c.Attention(o, q, cache[0].RowRange(first, all), cache[1].RowRange(first, all), lse, b.attention(c))
	b.freeHeads(c, q, k)
	h := b.residual(c, &b.proj, o, x, b.drops[1])
	free(c.List, &headStats[0], &headStats[1])
	free(c.List, &x, &n1, &stats, &qkv[0], &qkv[1], &qkv[2], &o, &lse)
	n2, stats := b.norm2.forward(c, h)
	u := b.project(c, n2, b.up)
	b.activation(c, u[0], [2]tensorops.Tensor{u[0], u[1]})
	y := b.residual(c, &b.down, u[0], h, b.drops[2])
	free(c.List, &h, &n2, &stats, &u[0], &u[1])
	return y
}

// decode fetches the logits of the last position. It owns x.
func (h *head) decode(c *pass, x tensorops.Tensor, logits []float32) {
	n, stats := h.norm.forward(c, x)
	out := c.Alloc(tensorops.Float32, 1, h.vocab)
	last := c.mb.Positions - 1
	h.proj.forward(c, out, n.Matrix().RowRange(last, last+1))
	c.Fetch(tensorops.HostBytes(logits), out)
	free(c.List, &x, &n, &stats, &out)
}
