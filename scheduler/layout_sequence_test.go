package scheduler

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestValidateSequence: a layout spells the model's parts, and an error says where it doesn't.
func TestValidateSequence(t *testing.T) {
	for _, c := range []struct {
		symbols, layout string
		ranks           int
		want            string // of the error
	}{
		{"EtttEtttL", "Et|tt|Ett|tL", 4, ""},
		{"EtttEtttL", "Ettt|E|tt|tL", 4, ""},
		{"EtttEtttL", "Ettt|||EtttL", 4, ""},
		{"tttL", "t|t|t|L", 4, ""},
		{"tttL", "tttL", 1, ""},
		{"L", "L", 1, ""},
		{"tLtL", "tL|tL", 2, ""}, // a loss on the way
		{"EttmL", "E|tt|mL", 3, ""},
		{"EtttEtttL", "Et|tt|tEt|tL", 4, "chunk 2 holds t where the model has E, as part 5 of 9: its parts are Et*3,Et*3,L"},
		{"EtttEtttL", "Et|tt|Ett|t", 4, "it ends with chunk 3 after 8 parts, but the model continues with L: the model has 9 parts, Et*3,Et*3,L"},
		{"EtttEtttL", "Et|tt|Ett|tLL", 4, "chunk 3 holds L after the model's last part: the model has 9 parts"},
		{"EtttEtttL", "tt|tE|Ett|tL", 4, "chunk 0 holds t where the model has E, as part 1 of 9"},
		{"tttL", "Ettt|L", 2, "chunk 0 holds E where the model has t, as part 1 of 4"},
		{"tttL", "|tttL", 2, "chunk 0 is empty: it must hold the model's first part, t"},
		{"tttL", "tttL|", 2, "chunk 1, the last, is empty: it must hold the model's last part, L"},
		{"tttL", "", 1, "it ends with chunk 0 after 0 parts, but the model continues with t"},
		{"tttL", "t|t", 1, "it has 2 chunks, but 1 rank with 1 each"},
		{"EtxL", "EttL", 1, `part 3 of the model has the unknown symbol 'x'`},
		{strings.Repeat("t", MaxLayoutSymbols+1), "t", 1, "want 1 to"},
		{"EtmtL", "EtmtL", 1, "holds a t after the first m"},
		{"EttmL", "Ettm|L", 2, "rank 0 cannot hold m"},
		{strings.Repeat("Et", 1000), "EE", 1, "chunk 0 holds E where the model has t, as part 2 of 2000"},
	} {
		l, err := ParseLayout(c.layout)
		if err != nil {
			t.Fatal(err)
		}
		err = l.Validate(LayoutSpec{Symbols: c.symbols, Layers: 99, Ranks: c.ranks, Chunks: 1})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%.20s as %s: %v", c.symbols, c.layout, err)
		case c.want != "" && (!errors.Is(err, ErrLayout) || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 300):
			t.Errorf("%.20s as %s: %v\nwant %s", c.symbols, c.layout, err, c.want)
		}
	}
	odd := &Layout{Chunks: [][]Symbol{{'t', '?'}}}
	if err := odd.Validate(LayoutSpec{Symbols: "tt", Ranks: 1, Chunks: 1}); !errors.Is(err, ErrLayout) ||
		!strings.Contains(err.Error(), "unknown symbol '?'") {
		t.Errorf("an unknown symbol: %v", err)
	}
}

func TestBalancedSequence(t *testing.T) {
	for _, c := range []struct {
		symbols string
		costs   []float64
		spec    LayoutSpec
		want    string
	}{
		{"EtttEtttL", []float64{0, 1, 1, 1, 0, 1, 1, 1, 0}, LayoutSpec{Ranks: 2, Chunks: 1}, "Et*3,E|t*3,L"},
		{"EtttEtttL", []float64{0, 1, 1, 1, 0, 2, 2, 2, 1}, LayoutSpec{Ranks: 4, Chunks: 1}, "Ett|tEt|t|tL"},
		{"tttL", []float64{10, 3, 1, 0}, LayoutSpec{Ranks: 2, Chunks: 1}, "t|ttL"},
		{"tttL", []float64{1, 1, 1, 1}, LayoutSpec{Ranks: 4, Chunks: 1}, "t|t|t|L"},
		{"tttttL", []float64{1, 8, 1, 1, 4, 4}, LayoutSpec{Ranks: 3, Chunks: 1}, "tt|t*3|L"}, // 9, 6 and 4
		{"tL", []float64{1, 1}, LayoutSpec{Ranks: 4, Chunks: 1}, "t|||L"},
		{"L", []float64{1}, LayoutSpec{Ranks: 1, Chunks: 1}, "L"},
		{"ttL", []float64{0, 0, 0}, LayoutSpec{Ranks: 2, Chunks: 1}, "t|tL"},
		// Rank 0 has the first chunk and the last.
		{"tttttttL", []float64{6, 1, 2, 3, 2, 1, 2, 1}, LayoutSpec{Ranks: 2, Chunks: 2, Placement: V}, "t|tt|t*3|tL"},
		{"EtttmL", []float64{0, 1, 1, 2, 1, 1}, LayoutSpec{Ranks: 2, Chunks: 1}, "Ett|tmL"},
		{"EtttmL", []float64{0, 1, 1, 2, 1, 1}, LayoutSpec{Ranks: 2, Chunks: 2, Placement: V}, "Ett|t|m|L"},
	} {
		chunks, err := c.spec.Placement.Chunks(c.spec.Ranks, c.spec.Chunks)
		if err != nil {
			t.Fatal(err)
		}
		l, err := BalancedSequence(c.symbols, c.costs, c.spec, chunks)
		if err != nil {
			t.Errorf("%s: %v", c.symbols, err)
			continue
		}
		want, err := ParseLayout(c.want)
		if err != nil || l.String() != want.String() {
			t.Errorf("%s with %v: %s, want %s, %v", c.symbols, c.costs, l, want, err)
		}
		c.spec.Symbols = c.symbols
		if err := l.Validate(c.spec); err != nil {
			t.Errorf("%s as %s: %v", c.symbols, l, err)
		}
	}
	for _, c := range []struct {
		symbols string
		costs   []float64
		spec    LayoutSpec
		chunks  int
		want    error
	}{
		{"", nil, LayoutSpec{Ranks: 1}, 1, ErrLayout},
		{"x", []float64{1}, LayoutSpec{Ranks: 1}, 1, ErrLayout},
		{"tL", []float64{1}, LayoutSpec{Ranks: 1}, 1, ErrCosts},
		{"tL", []float64{1, -1}, LayoutSpec{Ranks: 1}, 1, ErrCosts},
		{"tL", []float64{1, math.NaN()}, LayoutSpec{Ranks: 1}, 1, ErrCosts},
		{"tL", []float64{math.MaxFloat64, math.MaxFloat64}, LayoutSpec{Ranks: 1}, 1, ErrCosts},
		{"L", []float64{1}, LayoutSpec{Ranks: 1}, 2, ErrLayout},
		{"tL", []float64{1, 1}, LayoutSpec{Ranks: 1}, 0, ErrLayout},
		{"tL", []float64{1, 1}, LayoutSpec{Ranks: 1}, MaxLayoutSymbols + 1, ErrLayout},
		{"tL", []float64{1, 1}, LayoutSpec{Ranks: 0}, 1, ErrLayout},
		{"tL", []float64{1, 1}, LayoutSpec{Ranks: 2}, 1, ErrLayout},
		{"mL", []float64{1, 1}, LayoutSpec{Ranks: 1}, 1, ErrLayout},
		{"tmtL", []float64{1, 1, 1, 1}, LayoutSpec{Ranks: 2}, 2, ErrLayout},
		{"tmtmL", []float64{1, 2, 1, 1, 1}, LayoutSpec{Ranks: 1}, 1, ErrLayout},
		{"tm", []float64{1, 1}, LayoutSpec{Ranks: 2, Placement: V}, 4, ErrLayout}, // nothing is left for the last chunk
	} {
		if l, err := BalancedSequence(c.symbols, c.costs, c.spec, c.chunks); !errors.Is(err, c.want) {
			t.Errorf("%s with %v on %d: %v, %v, want %v", c.symbols, c.costs, c.chunks, l, err, c.want)
		}
	}
}

// TestBalancedSequenceIsBalancedLayout: where decoder layers are alike, the two are one.
func TestBalancedSequenceIsBalancedLayout(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cost := rapid.Float64Range(0, 5)
		costs := LayerCosts{Embedding: cost.Draw(rt, "embedding"), Layer: 0.1 + cost.Draw(rt, "layer"), Head: cost.Draw(rt, "head")}
		mtp := cost.Draw(rt, "mtp")
		s := LayoutSpec{Layers: rapid.IntRange(0, 20).Draw(rt, "layers"), Ranks: rapid.IntRange(1, 6).Draw(rt, "ranks"),
			Chunks: rapid.IntRange(1, 2).Draw(rt, "chunks")}
		if s.Chunks == 2 {
			s.Placement = rapid.SampledFrom([]Placement{Loop, V, U}).Draw(rt, "placement")
		}
		if rapid.Bool().Draw(rt, "with mtp") {
			s.MTPLayers = rapid.IntRange(0, 3).Draw(rt, "mtp layers")
		}
		chunks, err := s.Placement.Chunks(s.Ranks, s.Chunks)
		if err != nil {
			rt.Fatal(err)
		}
		want, err := BalancedLayout(costs, mtp, s, chunks)
		if err != nil {
			rt.Fatal(err)
		}
		symbols := "E" + strings.Repeat("t", s.Layers) + strings.Repeat("m", s.MTPLayers) + "L"
		each := slices.Concat([]float64{costs.Embedding}, slices.Repeat([]float64{costs.Layer}, s.Layers),
			slices.Repeat([]float64{mtp}, s.MTPLayers), []float64{costs.Head})
		got, err := BalancedSequence(symbols, each, s, chunks)
		if err != nil || got.String() != want.String() {
			rt.Fatalf("%v, want %s, %v", got, want, err)
		}
		s.Symbols = symbols
		if err := got.Validate(s); err != nil {
			rt.Fatalf("%s: %v", got, err)
		}
	})
}

// TestBalancedSequenceIsGood compares with all ways to cut a small model: where each rank has
// one chunk the costliest rank costs the least that there is, with two at most twice as much.
func TestBalancedSequenceIsGood(t *testing.T) {
	worst := 1.0
	rapid.Check(t, func(rt *rapid.T) {
		costs := rapid.SliceOfN(rapid.Float64Range(0, 4), 2, 9).Draw(rt, "costs")
		if rapid.Bool().Draw(rt, "free parts") {
			for i := range costs {
				costs[i] = math.Floor(costs[i])
			}
		}
		s := LayoutSpec{Ranks: rapid.IntRange(1, 4).Draw(rt, "ranks"), Chunks: rapid.IntRange(1, 2).Draw(rt, "chunks")}
		if s.Chunks == 2 {
			s.Placement = rapid.SampledFrom([]Placement{Loop, V, U}).Draw(rt, "placement")
		}
		chunks, err := s.Placement.Chunks(s.Ranks, s.Chunks)
		if err != nil {
			rt.Fatal(err)
		}
		s.Symbols = strings.Repeat("t", len(costs)-1) + "L"
		l, err := BalancedSequence(s.Symbols, costs, s, chunks)
		if err != nil {
			rt.Fatal(err)
		}
		if err := l.Validate(s); err != nil {
			rt.Fatalf("%s: %v", l, err)
		}
		if chunks == 1 {
			return
		}
		largest := func(counts []int) float64 { // of the parts between the first and the last
			ranks, at := make([]float64, s.Ranks), 1
			ranks[s.Placement.Rank(0, s.Ranks)] += costs[0]
			ranks[s.Placement.Rank(chunks-1, s.Ranks)] += costs[len(costs)-1]
			for i, n := range counts {
				for range n {
					ranks[s.Placement.Rank(i, s.Ranks)] += costs[at]
					at++
				}
			}
			return slices.Max(ranks)
		}
		counts := make([]int, chunks)
		for i, chunk := range l.Chunks {
			counts[i] = len(chunk)
		}
		counts[0]--
		counts[chunks-1]--
		got, best := largest(counts), math.Inf(1)
		cut(len(costs)-2, chunks, func(other []int) { best = math.Min(best, largest(other)) })
		if chunks == s.Ranks && got > best*(1+1e-9) {
			rt.Fatalf("%s with %v: the costliest rank costs %v, %v is possible", l, costs, got, best)
		}
		if got > 2*best*(1+1e-9) {
			rt.Fatalf("%s with %v: the costliest rank costs %v, %v is possible", l, costs, got, best)
		}
		if best > 0 {
			worst = max(worst, got/best)
		}
	})
	t.Logf("the costliest rank costs up to %.3f times the least possible", worst)
}

// TestLargeSequence: a long model on many chunks is laid out, and in bounded time.
func TestLargeSequence(t *testing.T) {
	costs := make([]float64, MaxLayoutSymbols)
	for i := range costs {
		costs[i] = float64(mix(uint64(i))%1000) / 100
	}
	begin := time.Now()
	for _, chunks := range []int{1, 2, 64, 4096, MaxLayoutSymbols} {
		l, err := BalancedSequence(strings.Repeat("t", len(costs)), costs, LayoutSpec{Ranks: chunks}, chunks)
		if err != nil || len(l.Chunks) != chunks {
			t.Fatalf("%d chunks: %v", chunks, err)
		}
	}
	t.Log(time.Since(begin))
}
