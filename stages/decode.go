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
	cache  []mixerCache // of each decoder layer
	room   int          // capacity of the cache, in positions
	used   int          // positions in the cache
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
	for _, layer := range d.layers {
		if b, ok := layer.(*block); ok {
			d.cache = append(d.cache, b.mixer.newCache(l, s.productType(), d.room))
		}
	}
	return d, tensorops.Run(stream, l)
}

// Close frees the cache. No operation of the decoder may be in progress.
func (d *Decoder) Close() {
	for _, kept := range d.cache {
		kept.release()
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

// decode runs the forward for new positions of one sequence, after the used ones in the cache. It
// owns x.
func (b *block) decode(c *pass, x tensorops.Tensor, cache mixerCache, used int) tensorops.Tensor {
	var ends [2]branchEnd
	n, stats := b.norm1.forward(c, x)
	o := b.mixer.decode(c, cache, n, used)
	h := b.residual(c, &b.proj, &b.after1, &ends[0], o, x, b.drops[0])
	free(c.List, &x, &stats, &o)
	n, stats = b.norm2.forward(c, h)
	u := c.project(n, b.up)
	b.activation(c, u[0], [2]tensorops.Tensor{u[0], u[1]})
	y := b.residual(c, &b.down, &b.after2, &ends[1], u[0], h, b.drops[1])
	free(c.List, &h, &n, &stats, &u[0], &u[1])
	for i := range ends {
		free(c.List, &ends[i].y, &ends[i].stats)
	}
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
