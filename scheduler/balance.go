package scheduler

import (
	"fmt"
	"math"
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
	counts := make([]int, stages)
	for range layers {
		counts[cheapest(costs, counts)]++
	}

	l := &Layout{Stages: make([][]Symbol, stages)}
	for i, n := range counts {
		if i == 0 {
			l.Stages[i] = append(l.Stages[i], SymbolEmbedding)
		}
		for range n {
			l.Stages[i] = append(l.Stages[i], SymbolLayer)
		}
		if i == stages-1 {
			l.Stages[i] = append(l.Stages[i], SymbolLoss)
		}
	}
	return l, nil
}

// cheapest returns the stage that costs least, the last one of equals.
func cheapest(costs LayerCosts, counts []int) int {
	best, least := 0, math.Inf(1)
	for i, n := range counts {
		// Products, not running sums, so that equal stages compare equal.
		cost := float64(n) * costs.Layer
		if i == 0 {
			cost += costs.Embedding
		}
		if i == len(counts)-1 {
			cost += costs.Head
		}
		if cost <= least {
			best, least = i, cost
		}
	}
	return best
}
