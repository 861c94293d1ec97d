package scheduler

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/words"
)

// LayerCosts holds the costs of a model's parts, in any unit, such as the FLOPs of one token.
type LayerCosts struct {
	Embedding, Layer, Head float64
}

// BalancedLayout spreads equal layers over the chunks. It makes the costliest rank as cheap as
// possible, since that rank sets the pace of the pipeline, and it spreads each rank's layers evenly
// over its chunks. Between equal ranks, the one with the cheapest chunk gets a layer first. Between
// equal chunks the last gets it, because early chunks hold more microbatches.
//
// Each layer in turn goes to the rank with the lowest cost so far. That is optimal, since all
// layers are equal and a rank may hold any number of them: moving a layer to another rank never
// makes the costliest rank cheaper.
//
// Multi-token-prediction layers, each of cost mtp, stand with the loss, or in the chunk before it
// if rank 0 holds the loss. No decoder layer follows them. The errors are ErrCosts and ErrLayout.
func BalancedLayout(costs LayerCosts, mtp float64, s LayoutSpec, chunks int) (*Layout, error) {
	if !(costs.Layer > 0 && costs.Embedding >= 0 && costs.Head >= 0) ||
		math.IsInf(costs.Layer+costs.Embedding+costs.Head, 1) {
		return nil, fmt.Errorf("%w: embedding %v, layer %v, head %v: the costs must be finite and at least 0, and the layer's above 0",
			ErrCosts, costs.Embedding, costs.Layer, costs.Head)
	}
	if s.Layers < 0 || chunks < 1 || s.Layers > MaxLayoutSymbols || chunks > MaxLayoutSymbols-s.Layers-1 {
		return nil, fmt.Errorf("%w: %s on %s: want at least 0 layers and 1 chunk, and at most %d of both together",
			ErrLayout, words.Plural(s.Layers, "layer"), words.Plural(chunks, "chunk"), MaxLayoutSymbols-1)
	}
	if s.Ranks < 1 || s.Ranks > chunks {
		return nil, fmt.Errorf("%w: %s for %s: want 1 to %d", ErrLayout, words.Plural(s.Ranks, "rank"), words.Plural(chunks, "chunk"), chunks)
	}
	if !(mtp >= 0) || math.IsInf(mtp, 1) {
		return nil, fmt.Errorf("%w: a multi-token-prediction layer costs %v: want a finite number from 0", ErrCosts, mtp)
	}
	if n := MaxLayoutSymbols - 1 - s.Layers - chunks; s.MTPLayers < 0 || s.MTPLayers > n {
		return nil, fmt.Errorf("%w: %d multi-token-prediction layers: want 0 to %d", ErrLayout, s.MTPLayers, n)
	}
	b := &balance{
		spec: s, symbols: string(SymbolEmbedding) + strings.Repeat(string(SymbolLayer), s.Layers) +
			strings.Repeat(string(SymbolMTP), s.MTPLayers) + string(SymbolLoss),
		costs: slices.Concat([]float64{costs.Embedding}, slices.Repeat([]float64{costs.Layer}, s.Layers),
			slices.Repeat([]float64{mtp}, s.MTPLayers), []float64{costs.Head}),
	}
	return b.layout(chunks), nil
}

// BalancedSequence spreads a model's parts, in their order, over the chunks, given the cost of each
// part; see [LayoutSpec].Symbols. If all parts between the first and the last cost the same, it is
// [BalancedLayout]. Otherwise it has the same goal, the cheapest costliest rank. It reaches the
// optimum if each rank has one chunk, and comes close to it otherwise. The first part stands in the
// first chunk, the last part in the last. Multi-token-prediction layers stand together, followed
// only by the model's last part.
func BalancedSequence(symbols string, costs []float64, s LayoutSpec, chunks int) (*Layout, error) {
	if err := checkSequence(symbols); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLayout, err)
	}
	n := len(symbols)
	if len(costs) != n {
		return nil, fmt.Errorf("%w: %d costs for %d parts: want one for each", ErrCosts, len(costs), n)
	}
	total := 0.0
	for i, c := range costs {
		if total += c; !(c >= 0) || math.IsInf(total, 1) {
			return nil, fmt.Errorf("%w: part %d of the model, %c, costs %v: each cost must be finite and at least 0, and their sum finite", ErrCosts,
				i+1,
				symbols[i], c)
		}
	}
	if least := min(2, n); chunks < 1 || chunks > MaxLayoutSymbols || chunks > 1 && least < 2 {
		return nil, fmt.Errorf("%w: %s on %s: want 1 to %d chunks, and a part for the first and the last chunk", ErrLayout,
			words.Plural(n, "part"),
			words.Plural(chunks, "chunk"), MaxLayoutSymbols)
	}
	if s.Ranks < 1 || s.Ranks > chunks {
		return nil, fmt.Errorf("%w: %s for %s: want 1 to %d", ErrLayout, words.Plural(s.Ranks, "rank"), words.Plural(chunks, "chunk"), chunks)
	}
	if symbols[0] == byte(SymbolMTP) {
		return nil, fmt.Errorf("%w: the model begins with m, but multi-token-prediction layers must follow all other layers", ErrLayout)
	}
	s.Symbols = symbols
	l := (&balance{spec: s, symbols: symbols, costs: costs}).layout(chunks)
	if err := l.checkSequence(s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLayout, err)
	}
	if err := l.checkMTP(s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLayout, err)
	}
	return l, nil
}

// balance is a layout being built. The first part belongs to the first chunk; the parts after the
// multi-token prediction, or the last part, belong to the last chunk. The body between them is
// spread.
type balance struct {
	spec    LayoutSpec
	symbols string
	costs   []float64 // by part
	body    []float64 // costs of the parts to spread
	home    int       // the last chunk that may hold parts of the body: multi-token prediction's
	counts  []int     // parts of the body of each chunk
	extra   []float64 // by chunk: the cost of its other parts
}

// layout lays the parts out.
func (b *balance) layout(chunks int) *Layout {
	n := len(b.symbols)
	mtp, rest := max(0, n-1), max(0, n-1) // the start of multi-token prediction, and of the parts after it
	if i := strings.IndexByte(b.symbols, byte(SymbolMTP)); i >= 0 {
		mtp, rest = i, strings.LastIndexByte(b.symbols, byte(SymbolMTP))+1
	}
	b.home, b.counts, b.extra = chunks-1, make([]int, chunks), make([]float64, chunks)
	if mtp < rest && b.spec.Ranks > 1 && chunks > 1 && b.rank(b.home) == 0 {
		b.home--
	}
	first := min(1, mtp)
	b.extra[0] += sum(b.costs[:first])
	b.extra[chunks-1] += sum(b.costs[rest:])
	b.extra[b.home] += sum(b.costs[mtp:rest])
	b.body = b.costs[first:mtp]
	if alike(b.body) {
		b.deal()
	} else {
		b.cut()
	}
	l := &Layout{Chunks: make([][]Symbol, chunks)}
	at := 0
	for i, n := range b.counts {
		from := at
		if i == 0 {
			n += first
		}
		if at += n; i == b.home {
			at = rest
		}
		if i == chunks-1 {
			at = len(b.symbols)
		}
		l.Chunks[i] = []Symbol(b.symbols[from:at])
	}
	return l
}

// sum adds costs. For equal costs it is a product, so that equal sums compare equal.
func sum(costs []float64) float64 {
	if len(costs) > 0 && alike(costs) {
		return costs[0] * float64(len(costs))
	}
	total := 0.0
	for _, c := range costs {
		total += c
	}
	return total
}

func alike(costs []float64) bool {
	return !slices.ContainsFunc(costs, func(c float64) bool { return c != costs[0] })
}

func (b *balance) rank(chunk int) int { return b.spec.Placement.Rank(chunk, b.spec.Ranks) }

// deal spreads parts that cost the same: each in turn goes to the rank with the lowest cost.
func (b *balance) deal() {
	if len(b.body) == 0 {
		return
	}
	part := b.body[0]
	if part == 0 {
		part = 1 // by number
	}
	ofRank := struct {
		counts []int
		extra  []float64
	}{make([]int, b.spec.Ranks), make([]float64, b.spec.Ranks)}
	for i, cost := range b.extra {
		ofRank.extra[b.rank(i)] += cost
	}
	for range b.body {
		best, leastRank, least := 0, math.Inf(1), math.Inf(1)
		for i := range b.home + 1 {
			r := b.rank(i)
			// Products and not running sums, so that equal costs compare equal.
			rank := float64(ofRank.counts[r])*part + ofRank.extra[r]
			cost := float64(b.counts[i])*part + b.extra[i]
			if rank < leastRank || rank == leastRank && cost <= least {
				best, leastRank, least = i, rank, cost
			}
		}
		b.counts[best]++
		ofRank.counts[b.rank(best)]++
	}
}
