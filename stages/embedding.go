package stages

import "github.com/troupe-ml/troupe/tensorops"

// embedding turns token ids into rows, adds learned positions (GPT-2), and
// drops. It is the pipeline's first layer: it has no input but the tokens.
type embedding struct {
	tokens, positions use
	hasPositions      bool
	width             int
	drop              site
}

type embeddingState struct {
	dy    tensorops.Tensor // gradient of the sum, until weightGrad
	slots []int32          // rows of the weight's rowGrad, if it has one
}

func (*embedding) symbol() byte    { return SymbolEmbedding }
func (*embedding) newState() state { return new(embeddingState) }

func (*embedding) linears() []*linear { return nil }

func (e *embedding) uses() []use {
	if e.hasPositions {
		return []use{e.tokens, e.positions}
	}
	return []use{e.tokens}
}

func (s *embeddingState) drop(l *tensorops.List, _ bool) { free(l, &s.dy) }

func (e *embedding) forward(c *pass, st state, _ tensorops.Tensor) tensorops.Tensor {
	y := c.Alloc(c.stage.opts.Residual, c.mb.Sequences, c.mb.Positions, e.width)
	c.Embed(y, c.weight(e.tokens), c.tokens)
	if e.hasPositions {
		c.AddPositions(y, y, c.weight(e.positions), c.mb.Positions, c.mb.FirstPosition)
	}
	if m := c.mask(e.drop, c.mb.Positions*e.width); m.P > 0 {
		c.Dropout(y, y, tensorops.Tensor{}, m)
	}
	if rows := c.rowGrad(e.tokens); rows != nil && c.mb.Train {
		s := st.(*embeddingState)
		s.slots = rows.assign(s.slots[:0], c.mb.Tokens)
	}
	return y
}

func (e *embedding) inputGrad(c *pass, st state, dy tensorops.Tensor) tensorops.Tensor {
	if m := c.mask(e.drop, c.mb.Positions*e.width); m.P > 0 {
		c.Dropout(dy, dy, tensorops.Tensor{}, m)
	}
	st.(*embeddingState).dy = dy
	return tensorops.Tensor{}
}

func (e *embedding) weightGrad(c *pass, st state) {
	s := st.(*embeddingState)
	if e.tokens.frozen() { // and so the positions
		s.drop(c.List, true)
		return
	}
	if rows := c.rowGrad(e.tokens); rows != nil {
		slots := c.ids(s.slots)
		c.EmbedGrad(rows.sum, s.dy, slots)
		c.Free(slots)
	} else {
		c.EmbedGrad(c.grad(e.tokens), s.dy, c.tokens)
	}
	if e.hasPositions {
		c.PositionsGrad(c.grad(e.positions), s.dy, c.mb.Positions, c.mb.FirstPosition)
	}
	s.drop(c.List, true)
}
