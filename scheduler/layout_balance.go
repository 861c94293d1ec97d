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

// BalancedLayout spreads equal layers over the chunks so that the costliest
// chunk costs as little as it can; of all such layouts it takes the most even
// one, and of those the one with the lighter chunks first, because early chunks
// hold more microbatches. With more chunks than layers some stay empty.
//
// Each layer in turn goes to the chunk that costs least so far. That is exact,
// since all layers are alike and any count may stand on any chunk: moving a
// layer elsewhere can only take it to a chunk that costs as much or more.
func BalancedLayout(costs LayerCosts, layers, chunks int) (*Layout, error) {
	if !(costs.Layer > 0 && costs.Embedding >= 0 && costs.Head >= 0) ||
		math.IsInf(costs.Layer+costs.Embedding+costs.Head, 1) {
		return nil, fmt.Errorf("%w: embedding %v, layer %v, head %v: want finite numbers from 0, and a layer above 0",
			ErrCosts, costs.Embedding, costs.Layer, costs.Head)
	}
	if layers < 0 || chunks < 1 || layers > MaxLayoutSymbols || chunks > MaxLayoutSymbols-layers-1 {
		return nil, fmt.Errorf("%w: %d layers on %d chunks: want at least 0 layers and 1 chunk, at most %d together",
			ErrLayout, layers, chunks, MaxLayoutSymbols-1)
	}
	return balance(costs, layers, chunks, mtpHome{}), nil
}

// BalancedMTPLayout is BalancedLayout for a model with multi-token-prediction layers,
// each of which costs cost. They stand with the loss, or in the chunk before where
// rank 0 holds that; no decoder layer stands behind them.
func BalancedMTPLayout(costs LayerCosts, cost float64, s LayoutSpec, chunks int) (*Layout, error) {
	l, err := BalancedLayout(costs, s.Layers, chunks)
	if err != nil || s.MTPLayers == 0 {
		return l, err
	}
	if !(cost >= 0) || math.IsInf(cost, 1) {
		return nil, fmt.Errorf("%w: a multi-token-prediction layer costs %v: want a finite number from 0", ErrCosts, cost)
	}
	if n := MaxLayoutSymbols - 1 - s.Layers - chunks; s.MTPLayers < 0 || s.MTPLayers > n {
		return nil, fmt.Errorf("%w: %d multi-token-prediction layers: want 0 to %d", ErrLayout, s.MTPLayers, n)
	}
	home := mtpHome{chunk: chunks - 1, layers: s.MTPLayers, cost: cost * float64(s.MTPLayers)}
	if s.Ranks > 1 && chunks > 1 && s.Placement.Rank(home.chunk, s.Ranks) == 0 {
		home.chunk--
	}
	return balance(costs, s.Layers, chunks, home), nil
}

// mtpHome is the chunk of multi-token prediction; without layers there is none.
type mtpHome struct {
	chunk, layers int
	cost          float64 // of all layers
}

func balance(costs LayerCosts, layers, chunks int, home mtpHome) *Layout {
	counts := make([]int, chunks)
	open := counts // the chunks that may hold decoder layers
	if home.layers > 0 {
		open = counts[:home.chunk+1]
	}
	for range layers {
		open[cheapest(costs, open, chunks, home)]++
	}

	l := &Layout{Chunks: make([][]Symbol, chunks)}
	for i, n := range counts {
		if i == 0 {
			l.Chunks[i] = append(l.Chunks[i], SymbolEmbedding)
		}
		for range n {
			l.Chunks[i] = append(l.Chunks[i], SymbolLayer)
		}
		if i == home.chunk {
			l.Chunks[i] = append(l.Chunks[i], slices.Repeat([]Symbol{SymbolMTP}, home.layers)...)
		}
		if i == chunks-1 {
			l.Chunks[i] = append(l.Chunks[i], SymbolLoss)
		}
	}
	return l
}

// cheapest returns the chunk that costs least, the last one of equals, among the
// first ones of n.
func cheapest(costs LayerCosts, counts []int, chunks int, home mtpHome) int {
	best, least := 0, math.Inf(1)
	for i, n := range counts {
		// Products, not running sums, so that equal chunks compare equal.
		cost := float64(n) * costs.Layer
		if i == 0 {
			cost += costs.Embedding
		}
		if i == chunks-1 {
			cost += costs.Head
		}
		if home.layers > 0 && i == home.chunk {
			cost += home.cost
		}
		if cost <= least {
			best, least = i, cost
		}
	}
	return best
}
