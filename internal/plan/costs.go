package plan

import (
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
)

// LayerCosts returns the cost of each layer's passes; of is the cost for a layer that is trained. A
// frozen layer has no weight gradient, and below the lowest trained layer there is no
// backward pass at all. For models other than language models, the cost of a layer is that of
// its arithmetic.
func (p *Plan) LayerCosts(of CostFunc) func(layer int, t scheduler.Type) float64 {
	symbols, share := p.model.Symbols(), p.layerShares()
	cost := func(layer int, t scheduler.Type) float64 {
		return of(scheduler.Symbol(symbols[layer]), t) * share(layer)
	}
	if !p.model.Config.Language() {
		flops := p.model.FLOPs(p.cfg.Model.Context)
		cost = func(layer int, t scheduler.Type) float64 {
			return flops[layer] * scheduler.UnitCosts(0, scheduler.Action{Type: t})
		}
	}
	return p.withoutFrozen(cost)
}

// layerShares returns what each layer of a language model computes, as a share of the mean of its kind: decoder layers
// differ if some have a window.
func (p *Plan) layerShares() func(layer int) float64 {
	if !p.unequal() {
		return func(int) float64 { return 1 }
	}
	symbols, flops, means := p.model.Symbols(), p.model.FLOPs(p.cfg.Model.Context), p.symbolFLOPs()
	return func(layer int) float64 { return flops[layer] / means[scheduler.Symbol(symbols[layer])] }
}

// unequal reports whether decoder layers of a language model cost differently.
func (p *Plan) unequal() bool {
	if !p.model.Config.Language() {
		return false
	}
	symbols, flops := p.model.Symbols(), p.model.FLOPs(p.cfg.Model.Context)
	for i := 2; i < len(flops); i++ {
		if symbols[i] == stages.SymbolDecoder && flops[i] != flops[1] {
			return true
		}
	}
	return false
}

// withoutFrozen subtracts from the costs of layers what frozen layers do not compute.
func (p *Plan) withoutFrozen(cost func(int, scheduler.Type) float64) func(layer int, t scheduler.Type) float64 {
	if !p.cfg.Freezes() {
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

// HeadShare is the share of the gradient of the matrix in the forward pass of a language model's head: one of
// three products of equal size.
const HeadShare = 1.0 / 3

// headForward is the cost of a forward pass of a language model's head; 0 for other layers.
func (p *Plan) headForward(layer int, cost func(int, scheduler.Type) float64) float64 {
	if !p.model.Config.Language() || layer != len(p.model.Symbols())-1 {
		return 0
	}
	return cost(layer, scheduler.F)
}

// costs returns the costs of a chunk's actions: the sums over its layers.
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

// Costs returns the costs of a chunk's actions by arithmetic, in forward passes of a mean chunk. The least
// is a quarter of a unit cost: an action with next to no computation costs something, too.
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

// layerCost returns the given costs, or those of the arithmetic: an input gradient and a weight
// gradient need as many products as a forward pass.
func (p *Plan) layerCost() CostFunc {
	if p.cost != nil {
		return p.cost
	}
	flops := p.symbolFLOPs()
	return func(s scheduler.Symbol, t scheduler.Type) float64 {
		return flops[s] * scheduler.UnitCosts(0, scheduler.Action{Type: t})
	}
}

// symbolFLOPs returns the FLOPs of a layer's forward pass for a token.
func (p *Plan) symbolFLOPs() map[scheduler.Symbol]float64 {
	c, context := p.model.Config, p.cfg.Model.Context
	e, t, l := c.FLOPs(context)
	return map[scheduler.Symbol]float64{scheduler.SymbolEmbedding: e, scheduler.SymbolLayer: t, scheduler.SymbolLoss: l,
		scheduler.SymbolMTP: c.MTPFLOPs(context)}
}

// TokenFLOPs returns the FLOPs of training for a token: those of the model's forward pass, and twice as many for the
// backward pass, without those that frozen layers save.
func (p *Plan) TokenFLOPs() (all float64) {
	of := p.withoutFrozen(func(_ int, t scheduler.Type) float64 { return scheduler.UnitCosts(0, scheduler.Action{Type: t}) })
	for layer, flops := range p.model.FLOPs(p.cfg.Model.Context) {
		all += flops * (of(layer, scheduler.F) + of(layer, scheduler.B))
	}
	return all
}

// StagesOfLayers returns the stage of each of the model's layers.
func (p *Plan) StagesOfLayers() (stages []int) {
	for v, symbols := range p.layout.Chunks {
		for range symbols {
			stages = append(stages, p.table.RankOf(v))
		}
	}
	return stages
}

// ChunkFLOPs returns the FLOPs of each chunk's forward pass for a token.
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
