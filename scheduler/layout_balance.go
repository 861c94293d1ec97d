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

// BalancedLayout spreads equal layers over the chunks so that the costliest rank costs as
// little as it can, since a pipeline goes at the pace of that rank, and evenly over each
// rank's chunks. Of equal ranks the one with the cheapest chunk gets a layer first, of equal
// chunks the last, because early chunks hold more microbatches. With more chunks than layers
// some stay empty.
//
// Each layer in turn goes to the rank that costs least so far. That is exact, since all
// layers are alike and any count may stand on any rank: moving a layer elsewhere can only
// take it to a rank that costs as much or more.
//
// Multi-token-prediction layers, each of which costs mtp, stand with the loss, or in the
// chunk before where rank 0 holds that; no decoder layer stands behind them.
func BalancedLayout(costs LayerCosts, mtp float64, s LayoutSpec, chunks int) (*Layout, error) {
	if !(costs.Layer > 0 && costs.Embedding >= 0 && costs.Head >= 0) ||
		math.IsInf(costs.Layer+costs.Embedding+costs.Head, 1) {
		return nil, fmt.Errorf("%w: embedding %v, layer %v, head %v: want finite numbers from 0, and a layer above 0",
			ErrCosts, costs.Embedding, costs.Layer, costs.Head)
	}
	if s.Layers < 0 || chunks < 1 || s.Layers > MaxLayoutSymbols || chunks > MaxLayoutSymbols-s.Layers-1 {
		return nil, fmt.Errorf("%w: %d layers on %d chunks: want at least 0 layers and 1 chunk, at most %d together",
			ErrLayout, s.Layers, chunks, MaxLayoutSymbols-1)
	}
	if s.Ranks < 1 || s.Ranks > chunks {
		return nil, fmt.Errorf("%w: %d ranks for %d chunks: want 1 to %d", ErrLayout, s.Ranks, chunks, chunks)
	}
	if !(mtp >= 0) || math.IsInf(mtp, 1) {
		return nil, fmt.Errorf("%w: a multi-token-prediction layer costs %v: want a finite number from 0", ErrCosts, mtp)
	}
	if n := MaxLayoutSymbols - 1 - s.Layers - chunks; s.MTPLayers < 0 || s.MTPLayers > n {
		return nil, fmt.Errorf("%w: %d multi-token-prediction layers: want 0 to %d", ErrLayout, s.MTPLayers, n)
	}
	return newBalance(costs, mtp, s, chunks).layout(), nil
}

// balance is a layout in the making.
type balance struct {
	spec   LayoutSpec
	layer  float64   // what one costs
	home   int       // the last chunk that may hold decoder layers: multi-token prediction's
	counts []int     // decoder layers of each chunk
	extra  []float64 // of each chunk: what it costs beside decoder layers
	ofRank struct {
		counts []int
		extra  []float64
	}
}

func newBalance(costs LayerCosts, mtp float64, s LayoutSpec, chunks int) *balance {
	b := &balance{spec: s, layer: costs.Layer, home: chunks - 1, counts: make([]int, chunks), extra: make([]float64, chunks)}
	if s.MTPLayers > 0 && s.Ranks > 1 && chunks > 1 && b.rank(b.home) == 0 {
		b.home--
	}
	b.extra[0] += costs.Embedding
	b.extra[chunks-1] += costs.Head
	b.extra[b.home] += mtp * float64(s.MTPLayers)
	b.ofRank.counts, b.ofRank.extra = make([]int, s.Ranks), make([]float64, s.Ranks)
	for i, cost := range b.extra {
		b.ofRank.extra[b.rank(i)] += cost
	}
	for range s.Layers {
		i := b.cheapest()
		b.counts[i]++
		b.ofRank.counts[b.rank(i)]++
	}
	return b
}

func (b *balance) rank(chunk int) int { return b.spec.Placement.Rank(chunk, b.spec.Ranks) }

// cheapest returns the chunk for the next layer.
func (b *balance) cheapest() int {
	best, leastRank, least := 0, math.Inf(1), math.Inf(1)
	for i := range b.home + 1 {
		r := b.rank(i)
		// Products, not running sums, so that what is equal compares equal.
		ofRank := float64(b.ofRank.counts[r])*b.layer + b.ofRank.extra[r]
		cost := float64(b.counts[i])*b.layer + b.extra[i]
		if ofRank < leastRank || ofRank == leastRank && cost <= least {
			best, leastRank, least = i, ofRank, cost
		}
	}
	return best
}

func (b *balance) layout() *Layout {
	last := len(b.counts) - 1
	l := &Layout{Chunks: make([][]Symbol, len(b.counts))}
	for i, n := range b.counts {
		if i == 0 {
			l.Chunks[i] = append(l.Chunks[i], SymbolEmbedding)
		}
		for range n {
			l.Chunks[i] = append(l.Chunks[i], SymbolLayer)
		}
		if i == b.home {
			l.Chunks[i] = append(l.Chunks[i], slices.Repeat([]Symbol{SymbolMTP}, b.spec.MTPLayers)...)
		}
		if i == last {
			l.Chunks[i] = append(l.Chunks[i], SymbolLoss)
		}
	}
	return l
}
