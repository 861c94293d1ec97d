package stages

import "github.com/troupe-ml/troupe/tensorops"

// embedding looks up the rows of token ids, adds learned positions (GPT-2), and applies dropout. It
// is the pipeline's first layer: its only input are the tokens.
type embedding struct {
	tokens, positions use
	hasPositions      bool
	width             int
	factor            float64 // of the rows; 0: 1
	drop              site
	inputs            *layerInputs // of the decoder layers; nil: they have none
}

type embeddingState struct {
	dy    tensorops.Tensor // gradient of the sum, until weightGrad
	slots []int32          // rows of the weight's rowGrad, if it has one
	here  vocabRows        // this rank's rows, if the vocabulary is split

	inputs layerInputsState
}

func (*embedding) symbol() byte    { return SymbolEmbedding }
func (*embedding) newState() state { return new(embeddingState) }

func (e *embedding) linears() []*linear {
	if e.inputs != nil {
		return []*linear{&e.inputs.proj}
	}
	return nil
}

func (e *embedding) uses() []use {
	us := []use{e.tokens}
	if e.hasPositions {
		us = append(us, e.positions)
	}
	if e.inputs != nil {
		us = append(us, e.inputs.uses()...)
	}
	return us
}

func (s *embeddingState) drop(l *tensorops.List, _ bool) {
	free(l, &s.dy)
	s.inputs.drop(l)
}

func (e *embedding) forward(c *pass, st state, _ tensorops.Tensor) tensorops.Tensor {
	s, _ := st.(*embeddingState) // none in generation
	var here *vocabRows
	tokens := c.mb.Tokens
	if c.tensor().size() > 1 {
		here = &s.here
		here.find(c, e.tokens, tokens)
		tokens = here.ids
	}
	y := c.embed(e.tokens, c.tokens, here)
	c.scale(y, e.factor)
	var inputs tensorops.Tensor
	if e.inputs != nil {
		var own *layerInputsState
		if s != nil {
			own = &s.inputs
		}
		inputs = e.inputs.forward(c, own, y)
	}
	if e.hasPositions {
		starts := c.residualStarts()
		c.eachRun(y, starts, c.residualRuns(), func(rows, starts tensorops.Tensor, r run) {
			c.AddPositions(rows, rows, c.weight(e.positions), tensorops.PositionOpts{Period: r.hi - r.lo, First: r.first, Starts: starts})
		})
		c.freeResidualStarts(starts)
	}
	if c.drops(e.drop) {
		c.dropout(y, y, tensorops.Tensor{}, e.drop)
	}
	if rows := c.rowGrad(e.tokens); rows != nil && c.mb.Train {
		s.slots = rows.assign(s.slots[:0], tokens)
	}
	switch {
	case e.inputs == nil:
		return y
	case c.fed != nil: // the layers of a decoder are in one place
		c.fed.inputs = inputs
		return y
	}
	all := c.hidden(c.stage.model.passing.width(0))
	at := c.stage.model.passing.inputs(0)
	c.paste(all, columns{0, at.from}, y)
	c.paste(all, at, inputs)
	free(c.List, &y, &inputs)
	return all
}

// again records the scaled embeddings once more.
func (e *embedding) again(c *pass) tensorops.Tensor {
	y := c.embed(e.tokens, c.tokens, nil)
	c.scale(y, e.factor)
	return y
}

func (e *embedding) inputGrad(c *pass, st state, dy tensorops.Tensor) tensorops.Tensor {
	s := st.(*embeddingState)
	var dinputs tensorops.Tensor
	if e.inputs != nil {
		all, at := dy, c.stage.model.passing.inputs(0)
		dy, dinputs = c.cut(all, columns{0, at.from}, all.DType()), c.cut(all, at, all.DType())
		c.Free(all)
	}
	if c.drops(e.drop) {
		c.dropout(dy, dy, tensorops.Tensor{}, e.drop)
	}
	if e.inputs != nil {
		dx := e.inputs.inputGrad(c, &s.inputs, dinputs, func() tensorops.Tensor { return e.again(c) })
		c.Add(dy, dy, dx)
		c.Free(dx)
	}
	c.scale(dy, e.factor)
	s.dy = dy
	return tensorops.Tensor{}
}

// scale multiplies a tensor by a factor; 0: 1.
func (c *pass) scale(t tensorops.Tensor, factor float64) {
	if factor != 0 {
		c.AddScaled(t, t, tensorops.Tensor{}, factor)
	}
}

func (e *embedding) weightGrad(c *pass, st state) {
	s := st.(*embeddingState)
	if e.inputs != nil {
		e.inputs.weightGrad(c, &s.inputs)
	}
	s.dy = c.gathered(s.dy)
	switch rows := c.rowGrad(e.tokens); {
	case e.tokens.frozen():
	case c.tensor().size() > 1 && rows != nil:
		c.embedGrad(rows.sum, s.dy, &s.here, s.slots)
	case c.tensor().size() > 1:
		c.embedGrad(c.grad(e.tokens), s.dy, &s.here, s.here.ids)
	case rows != nil:
		slots := c.ids(s.slots)
		c.EmbedGrad(rows.sum, s.dy, slots)
		c.Free(slots)
	default:
		c.EmbedGrad(c.grad(e.tokens), s.dy, c.tokens)
	}
	if e.hasPositions && !e.positions.frozen() {
		c.eachRun(s.dy, c.starts, c.runs(), func(rows, starts tensorops.Tensor, r run) {
			c.PositionsGrad(c.grad(e.positions), rows, tensorops.PositionOpts{Period: r.hi - r.lo, First: r.first, Starts: starts})
		})
	}
	s.drop(c.List, true)
}
