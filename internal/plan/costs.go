package plan

import (
	"github.com/troupe-ml/troupe/scheduler"
)

// LayerCosts are those of each layer's passes, where of is what they take of one that is trained. A
// frozen layer makes no gradient of its weights; below the lowest layer that is trained there is no
// backward at all. A model that is no language model has layers each of their own, which cost by
// their arithmetic.
func (p *Plan) LayerCosts(of CostFunc) func(layer int, t scheduler.Type) float64 {
	symbols := p.model.Symbols()
	cost := func(layer int, t scheduler.Type) float64 { return of(scheduler.Symbol(symbols[layer]), t) }
	if !p.model.Config.Language() {
		flops := p.model.FLOPs(p.cfg.Model.Context)
		cost = func(layer int, t scheduler.Type) float64 {
			return flops[layer] * scheduler.UnitCosts(0, scheduler.Action{Type: t})
		}
	}
	return p.withoutFrozen(cost)
}

// withoutFrozen takes from the costs of layers what frozen ones don't do.
func (p *Plan) withoutFrozen(cost func(int, scheduler.Type) float64) func(layer int, t scheduler.Type) float64 {
	if len(p.cfg.Model.Freeze) == 0 {
		return cost
	}
	return func(layer int, t scheduler.Type) float64 {
		c, trained := cost(layer, t), p.model.TrainedShare(layer)
		switch {
		case t == scheduler.F:
			return c - HeadShare*p.headForward(layer, cost)*(1-trained)
		case !p.model.GoesBack(layer):
			return 0
		case t == scheduler.W:
			return c * trained
		case t == scheduler.B:
			input, weight := cost(layer, scheduler.I), cost(layer, scheduler.W)
			if input+weight > 0 {
				return c * (input + weight*trained) / (input + weight)
			}
		}
		return c
	}
}

// HeadShare is how much of a language model's head's forward is the gradient of its matrix: one of
// three products of equal size.
const HeadShare = 1.0 / 3

// headForward is a forward's cost of a language model's head, 0 of another layer.
func (p *Plan) headForward(layer int, cost func(int, scheduler.Type) float64) float64 {
	if !p.model.Config.Language() || layer != len(p.model.Symbols())-1 {
		return 0
	}
	return cost(layer, scheduler.F)
}

// costs are those of a chunk's actions: the sums of its layers'.
func (p *Plan) costs() scheduler.Costs {
	of := p.LayerCosts(p.layerCost())
	byChunk := make([][scheduler.B + 1]float64, len(p.layout.Chunks))
	layer := 0
	for v, symbols := range p.layout.Chunks {
		for range symbols {
			for t := scheduler.F; t <= scheduler.B; t++ {
				byChunk[v][t] += of(layer, t)
			}
			layer++
		}
	}
	return func(_ int, a scheduler.Action) float64 { return byChunk[a.Chunk][a.Type] }
}

// Costs are those of a chunk's actions by arithmetic, in forwards of a mean chunk; where
// there is next to nothing to compute, a quarter of it: an action costs something.
func (p *Plan) Costs() scheduler.Costs {
	of, mean := p.costs(), 0.0
	for v := range p.all {
		mean += of(0, scheduler.Action{Chunk: int32(v), Type: scheduler.F}) / float64(len(p.all))
	}
	return func(rank int, a scheduler.Action) float64 {
		least := scheduler.UnitCosts(0, scheduler.Action{Type: a.Type}) / 4
		return max(of(rank, a)/max(mean, 1e-30), least)
	}
}

// layerCost is what was given, or the arithmetic: an input gradient and a weight
// gradient take as many products as a forward.
func (p *Plan) layerCost() CostFunc {
	if p.cost != nil {
		return p.cost
	}
	flops := p.symbolFLOPs()
	return func(s scheduler.Symbol, t scheduler.Type) float64 {
		return flops[s] * scheduler.UnitCosts(0, scheduler.Action{Type: t})
	}
}

// symbolFLOPs are those of a layer's forward of a token.
func (p *Plan) symbolFLOPs() map[scheduler.Symbol]float64 {
	c, context := p.model.Config, p.cfg.Model.Context
	e, t, l := c.FLOPs(context)
	return map[scheduler.Symbol]float64{scheduler.SymbolEmbedding: e, scheduler.SymbolLayer: t, scheduler.SymbolLoss: l,
		scheduler.SymbolMTP: c.MTPFLOPs(context)}
}

// TokenFLOPs are those that training asks for of a token: the model's forward, and twice as many for its
// backward, without what frozen layers save.
func (p *Plan) TokenFLOPs() (all float64) {
	of := p.withoutFrozen(func(_ int, t scheduler.Type) float64 { return scheduler.UnitCosts(0, scheduler.Action{Type: t}) })
	for layer, flops := range p.model.FLOPs(p.cfg.Model.Context) {
		all += flops * (of(layer, scheduler.F) + of(layer, scheduler.B))
	}
	return all
}

// StagesOfLayers are the stages that compute the model's layers.
func (p *Plan) StagesOfLayers() (stages []int) {
	for v, symbols := range p.layout.Chunks {
		for range symbols {
			stages = append(stages, p.table.RankOf(v))
		}
	}
	return stages
}

// ChunkFLOPs are those of each chunk's forward of a token.
func (p *Plan) ChunkFLOPs() []float64 {
	byChunk, layer := make([]float64, len(p.layout.Chunks)), 0
	flops := p.model.FLOPs(p.cfg.Model.Context)
	for v, symbols := range p.layout.Chunks {
		for range symbols {
			byChunk[v] += flops[layer]
			layer++
		}
	}
	return byChunk
}
