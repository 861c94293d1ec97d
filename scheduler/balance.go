package scheduler

import (
	"fmt"
	"math"
	"slices"
)

// LayerCosts is what the parts of a model cost, in any unit, such as the FLOPs
// of one token.
type LayerCosts struct {
	Embedding, Layer, Head float64
}

// BalancedLayout spreads equal layers over the stages so that the costliest
// stage costs as little as it can; of all such layouts it takes the most even
// one, and of those the one with the lighter stages first, because early stages
// hold more microbatches. With more stages than layers some stay empty.
//
// Each layer in turn goes to the stage that costs least so far. That is exact,
// since all layers are alike and any count may stand on any stage: moving a
// layer elsewhere can only take it to a stage that costs as much or more.
func BalancedLayout(costs LayerCosts, layers, stages int) (*Layout, error) {
	if !(costs.Layer > 0 && costs.Embedding >= 0 && costs.Head >= 0) ||
		math.IsInf(costs.Layer+costs.Embedding+costs.Head, 1) {
		return nil, fmt.Errorf("%w: embedding %v, layer %v, head %v: want finite numbers from 0, and a layer above 0",
			ErrCosts, costs.Embedding, costs.Layer, costs.Head)
	}
	if layers < 0 || stages < 1 || layers > MaxLayoutSymbols || stages > MaxLayoutSymbols-layers-1 {
		return nil, fmt.Errorf("%w: %d layers on %d stages: want at least 0 layers and 1 stage, at most %d together",
			ErrLayout, layers, stages, MaxLayoutSymbols-1)
	}
	return balance(costs, layers, stages, mtpHome{}), nil
}

// BalancedMTPLayout is BalancedLayout for a model with multi-token-prediction layers,
// each of which costs cost. They stand with the loss, or in the stage before where
// rank 0 holds that; no decoder layer stands behind them.
func BalancedMTPLayout(costs LayerCosts, cost float64, s LayoutSpec, stages int) (*Layout, error) {
	l, err := BalancedLayout(costs, s.Layers, stages)
	if err != nil || s.MTPLayers == 0 {
		return l, err
	}
	if !(cost >= 0) || math.IsInf(cost, 1) {
		return nil, fmt.Errorf("%w: a multi-token-prediction layer costs %v: want a finite number from 0", ErrCosts, cost)
	}
	if n := MaxLayoutSymbols - 1 - s.Layers - stages; s.MTPLayers < 0 || s.MTPLayers > n {
		return nil, fmt.Errorf("%w: %d multi-token-prediction layers: want 0 to %d", ErrLayout, s.MTPLayers, n)
	}
	home := mtpHome{stage: stages - 1, layers: s.MTPLayers, cost: cost * float64(s.MTPLayers)}
	if s.Ranks > 1 && stages > 1 && s.Placement.Rank(home.stage, s.Ranks) == 0 {
		home.stage--
	}
	return balance(costs, s.Layers, stages, home), nil
}

// mtpHome is the stage of multi-token prediction; without layers there is none.
type mtpHome struct {
	stage, layers int
	cost          float64 // of all layers
}

func balance(costs LayerCosts, layers, stages int, home mtpHome) *Layout {
	counts := make([]int, stages)
	open := counts // the stages that may hold decoder layers
	if home.layers > 0 {
		open = counts[:home.stage+1]
	}
	for range layers {
		open[cheapest(costs, open, stages, home)]++
	}

	l := &Layout{Stages: make([][]Symbol, stages)}
	for i, n := range counts {
		if i == 0 {
			l.Stages[i] = append(l.Stages[i], SymbolEmbedding)
		}
		for range n {
			l.Stages[i] = append(l.Stages[i], SymbolLayer)
		}
		if i == home.stage {
			l.Stages[i] = append(l.Stages[i], slices.Repeat([]Symbol{SymbolMTP}, home.layers)...)
		}
		if i == stages-1 {
			l.Stages[i] = append(l.Stages[i], SymbolLoss)
		}
	}
	return l
}

// cheapest returns the stage that costs least, the last one of equals, among the
// first ones of n.
func cheapest(costs LayerCosts, counts []int, stages int, home mtpHome) int {
	best, least := 0, math.Inf(1)
	for i, n := range counts {
		// Products, not running sums, so that equal stages compare equal.
		cost := float64(n) * costs.Layer
		if i == 0 {
			cost += costs.Embedding
		}
		if i == stages-1 {
			cost += costs.Head
		}
		if home.layers > 0 && i == home.stage {
			cost += home.cost
		}
		if cost <= least {
			best, least = i, cost
		}
	}
	return best
}
