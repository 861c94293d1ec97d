package stages

import (
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// ZeRO-3: the replicas also share the weights. A rank has its part of each large weight, and a
// layer's whole weights only while it computes with them. Meanwhile the next layer's weights are
// gathered, and those of the previous layer are freed. So each pass of a microbatch gathers the
// weights again; with HoldWeights, only the first of a chunk's consecutive passes does. All
// replicas must record the same passes in the same order, also in validation.

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
	now   *gathering // of the pass being recorded
}

func (g *gatheredWeights) beforeLayers(p *pass, backward bool) {
	g.now = g.stage.gather(p.List, p.chunk, backward, p.mb.Train)
}
func (g *gatheredWeights) beforeLayer(_ *pass, i int) { g.now.before(i) }
func (g *gatheredWeights) afterLayer(_ *pass, i int)  { g.now.after(i) }

// gathering walks through the layers of a chunk in the order of a pass.
type gathering struct {
	s      *Stage
	l      *tensorops.List
	c      *chunk
	back   bool          // the pass is a backward
	layers []int         // layers that need weights, in the order of the pass
	began  int           // number of layers started
	await  bool          // some weights have not arrived yet
	padded []*localParam // weights that have not arrived yet and do so with gaps
}

// gather starts a pass. Its layers are those that compute with weights, in the order of the pass.
func (s *Stage) gather(l *tensorops.List, c *chunk, backward, train bool) *gathering {
	g := &gathering{s: s, l: l, c: c, back: backward}
	if s.holding != c {
		s.letGo(l)
		s.holding = c
	}
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
	if g.await {
		g.l.Await()
		g.await = false
		g.closeGaps()
	}
	if g.began < len(g.layers) {
		g.start(g.layers[g.began])
		g.began++
	}
}

func (g *gathering) start(i int) {
	for _, h := range g.split(i) {
		if h.w.Valid() || g.l.Err() != nil { // the previous layer has it, too
			continue
		}
		group, each := g.s.copiesOf(h.param), h.weightPart.Len()
		t := g.l.Alloc(h.weightPart.DType(), group.Size(), each)
		if g.l.Err() != nil {
			return
		}
		g.s.beginCollective(g.l, tensorops.CollectiveArgs{What: tensorops.AllGather, Dst: t, Src: h.weightPart.View(1, each), Group: group})
		g.await = true
		if g.s.partition(h.param).gaps() {
			h.paddedWeight = t
			g.padded = append(g.padded, h)
			h.w = g.l.Alloc(t.DType(), h.param.Shape...)
			continue
		}
		h.w = t.Part(0, h.param.Shape...) // which may have more elements than the largest dimension
	}
}

// closeGaps records the copies of weights that have arrived with gaps between their elements.
func (g *gathering) closeGaps() {
	for _, h := range g.padded {
		x := g.s.partition(h.param)
		x.eachSection(func(at, padded int) {
			g.l.Copy(within(h.w, at, at+x.section), within(h.paddedWeight, padded, padded+x.section))
		})
		free(g.l, &h.paddedWeight)
	}
	g.padded = g.padded[:0]
}

// after frees a layer's weights, except those that the next layer also uses.
func (g *gathering) after(i int) {
	at := slices.Index(g.layers, i)
	if at < 0 || g.s.opts.Data.HoldWeights {
		return
	}
	var next []*localParam
	if at+1 < len(g.layers) {
		next = g.split(g.layers[at+1])
	}
	for _, h := range g.split(i) {
		if h.w.Valid() && !slices.Contains(next, h) {
			g.l.Free(h.w)
			h.w = tensorops.Tensor{}
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

// letGo frees all gathered weights.
func (s *Stage) letGo(l *tensorops.List) {
	for _, h := range s.local {
		if h.splitsWeight {
			free(l, &h.w, &h.paddedWeight)
		}
	}
	s.holding = nil
}
