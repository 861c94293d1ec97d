package stages

import "github.com/troupe-ml/troupe/tensorops"

// mtp is a layer of multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2). The layer
// of depth k joins the hidden state of depth k−1 with the embedding of the token k places ahead. A
// decoder layer turns both into the hidden state from which the head predicts the token k+1 places
// ahead:
//
//	block(projection([norm(embedding); norm(hidden)]))
//
// Embedding and head are the model's own. The layer works in training only; otherwise it passes its
// input on.
//
// The head takes the hidden states of all depths, so they travel together. The layer's input is
// [k·B, T, C], depths 0 to k−1 one after the other; its output is [(k+1)·B, T, C].
type mtp struct {
	depth        int // k, from 1
	width        int
	tokens       use     // the embedding's weight
	factor       float64 // of its rows; 0: 1
	enorm, hnorm norm    // of the embedding, of the hidden state
	proj         linear
	block        *block
}

// mtpState keeps only the hidden state and the token ids until the backward, which recomputes the
// rest.
type mtpState struct {
	ids, slots     []int32          // the later token at each position, and its row of the weight's rowGrad if there is one
	here           vocabRows        // this rank's rows, if the vocabulary is split
	h              tensorops.Tensor // hidden state of depth k−1 [B, T, C]
	e              tensorops.Tensor // embedding of ids
	estats, hstats tensorops.Tensor
	joined         tensorops.Tensor // input of the projection [B, T, 2C]
	dp             tensorops.Tensor // gradients kept for weightGrad: the projection's output,
	den, dhn, de   tensorops.Tensor // the norms' outputs, the embedding
	block          blockState
}

func (*mtp) symbol() byte { return SymbolMTP }
func (m *mtp) newState() state {
	return &mtpState{block: *m.block.newState().(*blockState)}
}

func (m *mtp) uses() []use {
	us := append([]use{m.tokens}, m.enorm.uses()...)
	us = append(us, m.hnorm.uses()...)
	us = append(us, m.proj.uses()...)
	return append(us, m.block.uses()...)
}

func (m *mtp) linears() []*linear { return append([]*linear{&m.proj}, m.block.linears()...) }

func (s *mtpState) drop(l *tensorops.List, all bool) {
	free(l, &s.e, &s.estats, &s.hstats, &s.joined, &s.dp, &s.den, &s.dhn, &s.de)
	s.block.drop(l, all)
	if all {
		free(l, &s.h)
	}
}

// join computes the projection's input from the state's hidden state and token ids, and all
// intermediate values.
func (m *mtp) join(c *pass, s *mtpState) {
	s.e = c.embedIDs(m.tokens, s.ids, &s.here)
	c.scale(s.e, m.factor)
	s.joined = c.Alloc(c.inner(), c.mb.Sequences, c.positions(), 2*m.width)
	var n tensorops.Tensor
	n, s.estats = m.enorm.forward(c, s.e)
	c.Copy(s.joined.Columns(0, m.width), n)
	c.Free(n)
	n, s.hstats = m.hnorm.forward(c, s.h)
	c.Copy(s.joined.Columns(m.width, 2*m.width), n)
	c.Free(n)
}

func (m *mtp) forward(c *pass, st state, x tensorops.Tensor) tensorops.Tensor {
	if !c.mb.Train {
		return x
	}
	s := st.(*mtpState)
	s.ids = shift(s.ids[:0], c.mb.Tokens, c.mb.Starts, c.mb.Positions, m.depth, known(c.mb.Tokens))
	tokens := s.ids
	if c.tensor().size() > 1 {
		s.here.find(c, m.tokens, s.ids)
		tokens = s.here.ids
	}
	if rows := c.rowGrad(m.tokens); rows != nil {
		s.slots = rows.assign(s.slots[:0], tokens)
	}
	rows := c.localRows()
	before := m.depth * rows // rows of the earlier depths
	s.h = c.hidden(m.width)
	c.Copy(s.h, x.RowRange(before-rows, before))
	m.join(c, s)
	p := c.hidden(m.width)
	m.proj.forward(c, p, s.joined)
	free(c.List, &s.e, &s.estats, &s.hstats, &s.joined)
	h := m.block.forward(c, &s.block, p)
	y := c.Alloc(c.stage.opts.Residual, (m.depth+1)*c.mb.Sequences, c.positions(), m.width)
	c.Copy(y.RowRange(0, before), x)
	c.Copy(y.RowRange(before, before+rows), h)
	free(c.List, &x, &h)
	return y
}

func (m *mtp) inputGrad(c *pass, st state, dy tensorops.Tensor) tensorops.Tensor {
	s := st.(*mtpState)
	rows := c.localRows()
	before := m.depth * rows
	dh := c.hidden(m.width)
	c.Copy(dh, dy.RowRange(before, before+rows))
	s.dp = m.block.inputGrad(c, &s.block, dh)
	m.join(c, s)
	dj := c.AllocLike(s.joined)
	m.proj.inputGrad(c, dj, s.dp, false)
	s.de = c.hidden(m.width)
	s.den, s.dhn = c.innerLike(s.de), c.innerLike(s.de)
	c.Copy(s.den, dj.Columns(0, m.width))
	c.Copy(s.dhn, dj.Columns(m.width, 2*m.width))
	c.Free(dj)
	m.enorm.inputGrad(c, s.de, s.den, s.e, s.estats, tensorops.Tensor{})
	c.scale(s.de, m.factor)
	// The hidden state of depth k−1 also bypasses this layer, to the head.
	around := dy.RowRange(before-rows, before)
	m.hnorm.inputGrad(c, around, s.dhn, s.h, s.hstats, around)
	// The earlier depths come first: the same memory without the last part.
	return dy.RowRange(0, before).View(m.depth*c.mb.Sequences, c.positions(), m.width)
}

func (m *mtp) weightGrad(c *pass, st state) {
	s := st.(*mtpState)
	m.block.weightGrad(c, &s.block)
	m.proj.weightGrad(c, s.joined, s.dp)
	m.hnorm.weightGrad(c, s.dhn, s.h, s.hstats)
	m.enorm.weightGrad(c, s.den, s.e, s.estats)
	if m.tokens.frozen() {
		s.drop(c.List, true)
		return
	}
	grad, at := c.grad(m.tokens), s.ids
	split := c.tensor().size() > 1
	if split {
		at = s.here.ids
	}
	if rows := c.rowGrad(m.tokens); rows != nil {
		grad, at = rows.sum, s.slots
	}
	s.de = c.gathered(s.de)
	if split {
		c.embedGrad(grad, s.de, &s.here, at)
	} else {
		ids := c.ids(at)
		c.EmbedGrad(grad, s.de, ids)
		c.Free(ids)
	}
	s.drop(c.List, true)
}

// shift appends, for each position of sequences of the given length, the id that stands by places
// ahead, and past for positions whose sequence, or document, ends before. Without starts each sequence is one
// document.
func shift(to, ids, starts []int32, positions, by int, past int32) []int32 {
	by = min(by, positions)
	for first := 0; positions > 0 && first+positions <= len(ids); first += positions {
		from := len(to)
		to = append(to, ids[first+by:first+positions]...)
		for i := from; starts != nil && i < len(to); i++ {
			if at := first + i - from; starts[at] != starts[at+by] {
				to[i] = past
			}
		}
		for range by {
			to = append(to, past)
		}
	}
	return to
}

// known returns an id to use after the end of a sequence. Any id would do, since no target follows
// from it. An id of the microbatch adds no row to a rowGrad.
func known(tokens []int32) int32 {
	if len(tokens) == 0 {
		return 0
	}
	return tokens[len(tokens)-1]
}
