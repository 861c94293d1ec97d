package stages

import (
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// ZeRO-3: the replicas also share the weights. A rank has its part of each large weight, and a
// layer's whole weights only while it computes with them. Meanwhile the next layer's weights are
// gathered, and those of the previous layer are freed. So each pass of a microbatch gathers the
// weights again; with HoldWeights, only the first of a chunk's consecutive passes does.
//
// Two passes that take turns (Together) walk through their layers at the same time, of one chunk or
// of two. A gathered weight counts the layers that need it now. A layer that needs a weight which the
// other pass has gathered, or is gathering, gathers none; the last one frees it.
//
// All replicas must record the same passes in the same order, also in validation. What a list gathers
// follows from the passes that it records, their turns (scheduler.Turns) and the weights that are
// whole at its beginning, and never from the time at which something arrives. So all replicas begin
// the same collectives in the same order, between those of their expert groups, and wait for them at
// the same places. The first one that has not ended in that order has been begun by all of its members
// or will be: none of them waits for a later one. Package world proves it for the whole grid, from
// recorded lists.

// splitWeight allocates this rank's part of a weight, and reports whether it keeps only that.
// Vectors and small weights stay whole.
func (s *Stage) splitWeight(l *tensorops.List, h *localParam, dtype tensorops.DType) bool {
	p := h.param
	if !s.opts.Data.splitsWeights() || !s.splits(p) || s.opts.Inference || len(p.Shape) < 2 || p.Len() < ownCollective {
		return false
	}
	h.splitsWeight, h.weightPart = true, l.Alloc(dtype, s.partLen(p))
	l.Fill(h.weightPart, 0) // padding of the last part
	return true
}

// ownWeight returns this rank's part of a weight, if it keeps only that.
func (s *Stage) ownWeight(h *localParam) tensorops.Tensor {
	from, to := s.ownPart(h.param)
	return within(h.weightPart, 0, to-from)
}

// gatheredWeights provides a layer's weights while it computes with them.
type gatheredWeights struct {
	noHook
	stage *Stage
}

func (g gatheredWeights) beforeLayers(p *pass, backward bool) {
	p.gathering = g.stage.gather(p.List, p.chunk, backward, p.mb.Train)
}
func (gatheredWeights) beforeLayer(p *pass, i int) { p.gathering.before(i) }
func (gatheredWeights) afterLayer(p *pass, i int)  { p.gathering.after(i) }

// gathering walks through the layers of a chunk in the order of a pass.
type gathering struct {
	s      *Stage
	l      *tensorops.List
	c      *chunk
	back   bool  // the pass is a backward
	layers []int // layers that need weights, in the order of the pass
	began  int   // number of layers started
}

// gather starts a pass. Its layers are those that compute with weights, in the order of the pass.
func (s *Stage) gather(l *tensorops.List, c *chunk, backward, train bool) *gathering {
	g := &gathering{s: s, l: l, c: c, back: backward}
	s.turnTo(l, c)
	for i, layer := range c.layers {
		e, _ := layer.(*embedding)
		switch sym := layer.symbol(); {
		case backward && e != nil && e.inputs != nil && c.back[i]:
			g.layers = append(g.layers, i)
		case backward && (!c.back[i] || sym == SymbolEmbedding || sym == SymbolLoss): // their products are in the forward
		case sym == SymbolMTP && !train:
		case slices.ContainsFunc(layer.uses(), func(u use) bool { return s.byParam[u.param.Index].splitsWeight }):
			g.layers = append(g.layers, i)
		}
	}
	if backward {
		slices.Reverse(g.layers)
	}
	return g
}

// before waits for a layer's weights, and starts gathering the next layer's.
func (g *gathering) before(i int) {
	at := slices.Index(g.layers, i)
	if at < 0 {
		return
	}
	for ; g.began <= at; g.began++ {
		g.start(g.layers[g.began])
	}
	for _, h := range g.split(i) {
		g.arrive(h)
	}
	if g.began < len(g.layers) {
		g.start(g.layers[g.began])
		g.began++
	}
}

// start takes a layer's weights, and gathers those that no other layer has.
func (g *gathering) start(i int) {
	for _, h := range g.split(i) {
		if h.weightUsers++; h.w.Valid() || g.l.Err() != nil {
			continue
		}
		group, each := g.s.copiesOf(h.param), h.weightPart.Len()
		t := g.l.Alloc(h.weightPart.DType(), group.Size(), each)
		if g.l.Err() != nil {
			continue
		}
		h.arriving = g.s.beginCollective(g.l, tensorops.CollectiveArgs{What: tensorops.AllGather, Dst: t, Src: h.weightPart.View(1, each),
			Group: group})
		if g.s.partition(h.param).gaps() {
			h.paddedWeight = t
			h.w = g.l.Alloc(t.DType(), h.param.Shape...)
			continue
		}
		h.w = t.Part(0, h.param.Shape...) // which may have more elements than the largest dimension
	}
}

// arrive waits for a weight that this pass or another one of the list gathers, and closes the gaps between its elements.
func (g *gathering) arrive(h *localParam) {
	if h.arriving == 0 || g.l.Err() != nil {
		return
	}
	g.l.AwaitOne(h.arriving)
	h.arriving = 0
	if !h.paddedWeight.Valid() {
		return
	}
	x := g.s.partition(h.param)
	x.eachSection(func(at, padded int) {
		g.l.Copy(within(h.w, at, at+x.section), within(h.paddedWeight, padded, padded+x.section))
	})
	free(g.l, &h.paddedWeight)
}

// after frees a layer's weights, except those that another layer needs: the next one, or one of the pass that takes turns.
func (g *gathering) after(i int) {
	if !slices.Contains(g.layers, i) {
		return
	}
	for _, h := range g.split(i) {
		if h.weightUsers--; h.weightUsers == 0 && !g.s.opts.Data.HoldWeights {
			free(g.l, &h.w)
		}
	}
}

// split returns the weights of a layer of which ranks keep parts.
func (g *gathering) split(i int) (hs []*localParam) {
	e, _ := g.c.layers[i].(*embedding)
	for _, u := range g.c.layers[i].uses() {
		if g.back && e != nil && e.inputs != nil && u.param == e.inputs.table.param {
			continue // a backward does not read this embedding, the largest weight of its models
		}
		if h := g.s.byParam[u.param.Index]; h.splitsWeight && !slices.Contains(hs, h) {
			hs = append(hs, h)
		}
	}
	return hs
}

// turnTo notes that a pass of a chunk begins. With HoldWeights it frees the weights of the chunk that was left longest ago, but not
// those of the pass with which this one takes turns.
func (s *Stage) turnTo(l *tensorops.List, c *chunk) {
	if !s.opts.Data.HoldWeights {
		return
	}
	most := 1
	if s.opts.Experts.Overlap {
		most = 2 // passes take turns
	}
	s.holding = append(slices.DeleteFunc(s.holding, func(other *chunk) bool { return other == c }), c)
	if len(s.holding) <= most {
		return
	}
	left := s.holding[0]
	s.holding = slices.Delete(s.holding, 0, 1)
	for _, layer := range left.layers {
		for _, u := range layer.uses() {
			if h := s.byParam[u.param.Index]; h.splitsWeight && h.weightUsers == 0 {
				free(l, &h.w)
			}
		}
	}
}

// letGo frees all gathered weights.
func (s *Stage) letGo(l *tensorops.List) {
	for _, h := range s.local {
		if h.splitsWeight {
			free(l, &h.w, &h.paddedWeight)
			h.weightUsers, h.arriving = 0, 0
		}
	}
	s.holding = s.holding[:0]
}
