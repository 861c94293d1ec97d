package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// Decoder continues sequences token by token. It computes the next tokens of several sequences together: products and norms
// over the rows of all, attention for each sequence over its own cache. On the CPU a sequence's logits are bit-identical
// to those that it has alone, whatever other sequences run. A GPU's library may multiply another number of rows in another
// order, which changes the last bits.
//
// It needs a stage that holds the whole model. It does not use the layers of multi-token prediction.
type Decoder struct {
	stage  *Stage
	stream tensorops.Stream
	layers []layer
	logits []float32
	fed    fed
}

// Sequence is one sequence of a Decoder, with its cache of keys and values.
type Sequence struct {
	decoder *Decoder
	caches  []mixerCache // of each decoder layer
	room    int          // positions that fit
	used    int          // positions so far
	// text is the tokens so far, if a longer text rotates all of its keys otherwise.
	text []int32
}

// Feed is what a sequence continues with: at least one token.
type Feed struct {
	Sequence *Sequence
	Tokens   []int32
}

// fed is the part of a pass that belongs to sequences of a Decoder: which rows are which sequence's new positions.
type fed struct {
	runs   []run
	of     []*Sequence
	caches []mixerCache // of one layer
	branch bool         // caches do not keep the new positions: see Score
	// What layers leave for later ones of the same pass: the inputs of all layers, the keys and values that layers share, by the layer
	// that keeps them, and memory that these are views of.
	inputs tensorops.Tensor
	kept   map[int][]attended
	held   []tensorops.Tensor
}

// end frees what layers have left.
func (f *fed) end(l *tensorops.List) {
	free(l, &f.inputs)
	for _, all := range f.kept {
		for i := range all {
			all[i].free(l)
		}
	}
	for _, t := range f.held {
		l.Free(t)
	}
	clear(f.kept)
	f.held = f.held[:0]
}

// ofLayer returns the caches of decoder layer n, one for each run.
func (f *fed) ofLayer(n int) []mixerCache {
	f.caches = f.caches[:0]
	for _, q := range f.of {
		if q == nil { // a branch without a sequence
			f.caches = append(f.caches, nil)
			continue
		}
		f.caches = append(f.caches, q.caches[n])
	}
	return f.caches
}

// NewDecoder returns a Decoder. The error is ErrModel if the stage does not hold the whole model.
func NewDecoder(s *Stage) (*Decoder, error) { return NewDecoderOn(s, s.stream) }

// NewDecoderOn is NewDecoder with its own stream on the same device. So several decoders of a stage
// may run at once, as long as its weights do not change.
func NewDecoderOn(s *Stage, stream tensorops.Stream) (*Decoder, error) {
	if size := s.opts.Tensor.size(); size > 1 {
		return nil, fmt.Errorf("%w: a decoder needs whole layers, but they are split over %d ranks", ErrModel, size)
	}
	c := s.chunks[0]
	if c == nil || len(c.layers) != len(s.model.layers) {
		return nil, fmt.Errorf("%w: a decoder needs all %d layers in chunk 0", ErrModel, len(s.model.layers))
	}
	return &Decoder{stage: s, stream: stream, layers: c.layers}, nil
}

// Add starts a sequence. It allocates a cache for n positions, or for those that the weights support if these are fewer;
// layers with a window keep only the last positions of it. Config.Context does not limit a sequence: that is the context
// of training.
func (d *Decoder) Add(positions int) (*Sequence, error) {
	q := &Sequence{decoder: d, room: min(positions, d.stage.model.Config.Positions())}
	l := d.stream.NewList()
	for _, layer := range d.layers {
		if b, ok := layer.(*block); ok {
			q.caches = append(q.caches, b.mixer.newCache(l, d.stage.productType(), q.room))
		}
	}
	if err := tensorops.Run(d.stream, l); err != nil {
		q.Close()
		return nil, err
	}
	return q, nil
}

// Close frees the cache. No operation of the decoder may be in progress, and the sequence must not be used any more.
func (q *Sequence) Close() {
	for _, c := range q.caches {
		c.release()
	}
	q.caches, q.decoder = nil, nil
}

// Used returns the number of positions in the cache.
func (q *Sequence) Used() int { return q.used }

// Reset empties the cache, for a new text.
func (q *Sequence) Reset() { q.used = 0 }

// Next appends tokens to this sequence alone: see Decoder.Next.
func (q *Sequence) Next(tokens []int32) ([]float32, error) {
	logits, err := q.decoder.Next(Feed{q, tokens})
	if err != nil {
		return nil, err
	}
	return logits[0], nil
}

// Next appends tokens to sequences, each at most once, and returns for each the logits of the token after its last one, [V].
// They are valid until the next call. A sequence must fit in its cache; otherwise the error is ErrInput, and no sequence has
// changed.
func (d *Decoder) Next(feeds ...Feed) ([][]float32, error) {
	tokens, err := d.feed(feeds)
	if err != nil {
		return nil, err
	}
	vocab := d.stage.model.Config.Vocab
	if n := len(feeds) * vocab; cap(d.logits) < n {
		d.logits = make([]float32, n)
	}
	d.logits = d.logits[:len(feeds)*vocab]
	l := d.stream.NewList()
	mb := Microbatch{Sequences: 1, Positions: len(tokens)}
	c := &pass{List: l, stage: d.stage, mb: &mb, fed: &d.fed}
	c.tokens = c.ids(tokens)
	var x tensorops.Tensor
	n := 0
	for _, layer := range d.layers {
		switch layer := layer.(type) {
		case *embedding:
			x = layer.forward(c, nil, x)
			l.Free(c.tokens)
		case *block:
			x = layer.decode(c, x, n)
			n++
		case *head:
			layer.decode(c, x, d.logits)
		}
	}
	d.fed.end(l)
	if err := tensorops.Run(d.stream, l); err != nil {
		return nil, err
	}
	all := make([][]float32, len(feeds))
	for i, f := range feeds {
		f.Sequence.append(f.Tokens)
		all[i] = d.logits[i*vocab : (i+1)*vocab : (i+1)*vocab]
	}
	return all, nil
}

// rotatesAgain reports whether all keys rotate otherwise in a text with n more tokens. Then the cache
// starts again, as transformers' Phi-3 does.
func (q *Sequence) rotatesAgain(n int) bool {
	s := q.decoder.stage.model.Config.RopeScaling
	return s.Type == "longrope" && q.used > 0 && s.reach(q.used) != s.reach(q.used+n)
}

// append notes tokens that the cache has.
func (q *Sequence) append(tokens []int32) {
	if q.decoder.stage.model.Config.RopeScaling.Type == "longrope" {
		q.text = append(q.text[:q.used], tokens...)
	}
	q.used += len(tokens)
}

// feed joins the tokens of all sequences, and notes whose they are.
func (d *Decoder) feed(feeds []Feed) (tokens []int32, err error) {
	d.fed.runs, d.fed.of = d.fed.runs[:0], d.fed.of[:0]
	if len(feeds) == 0 {
		return nil, fmt.Errorf("%w: no sequence to continue", ErrInput)
	}
	for i, f := range feeds {
		q := f.Sequence
		switch {
		case q == nil || q.decoder != d:
			return nil, fmt.Errorf("%w: sequence %d is closed or belongs to another decoder", ErrInput, i)
		case len(f.Tokens) == 0 || q.used+len(f.Tokens) > q.room:
			return nil, fmt.Errorf("%w: cannot add %d tokens after %d: the cache has room for %d", ErrInput, len(f.Tokens), q.used, q.room)
		}
		for _, other := range d.fed.of {
			if other == q {
				return nil, fmt.Errorf("%w: sequence %d is there twice", ErrInput, i)
			}
		}
		first := q.used
		if q.rotatesAgain(len(f.Tokens)) {
			first, tokens = 0, append(tokens, q.text[:q.used]...)
		}
		from := len(tokens) - (q.used - first)
		tokens = append(tokens, f.Tokens...)
		d.fed.runs = append(d.fed.runs, run{from, len(tokens), first})
		d.fed.of = append(d.fed.of, q)
	}
	return tokens, nil
}

// decode runs the forward of layer n for the new positions of sequences. It owns x.
func (b *block) decode(c *pass, x tensorops.Tensor, n int) tensorops.Tensor {
	var ends [2]branchEnd
	in, stats := b.norm1.forward(c, x)
	o := b.mixer.decode(c, c.fed.ofLayer(n), in)
	h := b.residual(c, c.branch(&b.proj, o, x), &b.after1, &ends[0], x, b.drops[0])
	free(c.List, &x, &stats, &o)
	in, stats = b.norm2.forward(c, h)
	st := b.ffn.newState()
	y := b.residual(c, b.ffn.forward(c, st, in, h), &b.after2, &ends[1], h, b.drops[1])
	st.drop(c.List)
	if b.input != nil {
		var own inputState
		input := c.cut(c.fed.inputs, columns{n * b.spec.input, (n + 1) * b.spec.input}, c.inner())
		y = b.input.forward(c, b, &own, input, y)
		c.Free(input)
		own.drop(c.List)
	}
	b.multiply(c, y)
	free(c.List, &h, &stats)
	for i := range ends {
		free(c.List, &ends[i].y, &ends[i].stats)
	}
	return y
}

// decode fetches the logits of the last position of each sequence. It owns x.
func (h *head) decode(c *pass, x tensorops.Tensor, logits []float32) {
	last := x
	if n := len(c.fed.runs); c.rows() > n {
		last = c.Alloc(x.DType(), n, x.Cols())
		for i, r := range c.fed.runs {
			c.Copy(last.RowRange(i, i+1), x.RowRange(r.hi-1, r.hi))
		}
		c.Free(x)
	}
	n, stats := h.norm.forward(c, last)
	c.scale(n, h.factor)
	out := c.Alloc(tensorops.Float32, len(c.fed.runs), h.vocab)
	h.proj.forward(c, out, n.Matrix())
	if h.softCap != 0 {
		c.SoftCap(out, out, h.softCap)
	}
	c.Fetch(tensorops.HostBytes(logits), out)
	free(c.List, &last, &n, &stats, &out)
}
