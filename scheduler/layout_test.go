package scheduler

import (
	"errors"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestExampleLayout(t *testing.T) {
	l, err := ParseLayout("Et*3|(tt|)*29,m|L")
	if err != nil {
		t.Fatal(err)
	}
	layers := 0
	for _, chunk := range l.Chunks {
		layers += strings.Count(string(chunk), "t")
	}
	if len(l.Chunks) != 32 || layers != 61 {
		t.Errorf("%d chunks with %d layers, want 32 with 61", len(l.Chunks), layers)
	}
	if err := l.Validate(LayoutSpec{Layers: 61, MTPLayers: 1, Ranks: 16, Chunks: 2}); err != nil {
		t.Error(err)
	}
}

// TestLayoutMeansTheSame: ways to write one layout.
func TestLayoutMeansTheSame(t *testing.T) {
	for canonical, others := range map[string][]string{
		"Ett|(tt|)*3,L": {"E,tt|tt|tt|tt|L", "Et*2|(t*2|)*3L", "Et*2(|tt)*3|L", ",E,,t,*,2,|(,tt|,),*,3,L,", "E(tt|)*4L"},
		"(|)*4,EL":      {"||||EL", "|*4EL", "(|)*4EL", "(||)*2EL"},
		"(Et*3|)*3,L":   {"Ettt|Ettt|Ettt|L"},
		"EL":            {"Et*0L", "E(t|)*0L"},
		"":              {",", "t*0"},
		"tt":            {"t*2"},
		"t*3":           {"ttt", "(t)*3"},
		"Et*3,mL":       {"EtttmL", "Et*3m*1L"},
	} {
		want, err := ParseLayout(canonical)
		if err != nil || want.String() != canonical {
			t.Errorf("%q is written as %q, %v", canonical, want, err)
			continue
		}
		for _, text := range others {
			got, err := ParseLayout(text)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%q is read as %q, %v; want %q", text, got, err, canonical)
			}
		}
	}
	if text := (&Layout{}).String(); text != "" {
		t.Errorf("a layout without chunks is written as %q", text)
	}
}

func TestValidateSymbols(t *testing.T) {
	l := &Layout{Chunks: [][]Symbol{{'E', 'x', 'L'}}}
	if err := l.Validate(LayoutSpec{Ranks: 1, Chunks: 1}); !errors.Is(err, ErrLayout) {
		t.Errorf("unknown symbol: %v, want ErrLayout", err)
	}
	// One rank holds everything, also multi-token prediction.
	l = &Layout{Chunks: [][]Symbol{{'E', 't', 'm', 'L'}}}
	if err := l.Validate(LayoutSpec{Layers: 1, MTPLayers: 1, Ranks: 1, Chunks: 1}); err != nil {
		t.Error(err)
	}
}

// TestLayoutLimit: a short text can't ask for much memory.
func TestLayoutLimit(t *testing.T) {
	for _, text := range []string{
		"t*65536", strings.Repeat("t", MaxLayoutSymbols), "(t*256)*256", "|*65536",
	} {
		if _, err := ParseLayout(text); err != nil {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	for _, text := range []string{
		"t*65536,t", "t*65537", strings.Repeat("t", MaxLayoutSymbols+1), "(t*256)*257", "(t*65536)*65536", "(t*65536|)*1",
	} {
		_, err := ParseLayout(text)
		if !errors.Is(err, ErrSyntax) || len(err.Error()) > 200 {
			t.Errorf("%.20q: %v, want a short ErrSyntax", text, err)
		}
	}
	for _, text := range []string{"(t*65536)*65536", strings.Repeat("(", 1<<20), "(t*65536,t*65536)*9"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := ParseLayout(text); err == nil {
			t.Errorf("%.20q was read", text)
		}
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 1<<20 {
			t.Errorf("%.20q: %d bytes allocated", text, allocated)
		}
	}
}

// TestBalancedIsBest compares with all ways to cut a small model: no other has a cheaper
// costliest rank, and none that has one as cheap spreads the ranks more evenly.
func TestBalancedIsBest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		costs := LayerCosts{
			Embedding: rapid.Float64Range(0, 4).Draw(rt, "embedding"),
			Layer:     rapid.Float64Range(0.25, 2).Draw(rt, "layer"),
			Head:      rapid.Float64Range(0, 6).Draw(rt, "head"),
		}
		s := LayoutSpec{Layers: rapid.IntRange(0, 9).Draw(rt, "layers"), Ranks: rapid.IntRange(1, 4).Draw(rt, "ranks"),
			Chunks: rapid.IntRange(1, 2).Draw(rt, "chunks")}
		if s.Chunks == 2 {
			s.Placement = rapid.SampledFrom([]Placement{Loop, V, U}).Draw(rt, "placement")
		}
		chunks, err := s.Placement.Chunks(s.Ranks, s.Chunks)
		if err != nil {
			rt.Fatal(err)
		}
		l, err := BalancedLayout(costs, 0, s, chunks)
		if err != nil {
			rt.Fatal(err)
		}
		if err := l.Validate(s); err != nil {
			rt.Fatalf("%s: %v", l, err)
		}
		counts := make([]int, chunks)
		for i, chunk := range l.Chunks {
			counts[i] = strings.Count(string(chunk), "t")
		}
		largest, squares := load(costs, s, counts)
		cut(s.Layers, chunks, func(other []int) {
			otherLargest, otherSquares := load(costs, s, other)
			if otherLargest < largest-1e-9 {
				rt.Fatalf("%v costs %v, %v only %v", counts, largest, other, otherLargest)
			}
			if otherLargest < largest+1e-9 && otherSquares < squares-1e-9 {
				rt.Fatalf("%v is as good as %v and more even", other, counts)
			}
		})
	})
}

// cut calls visit with all ways to put the layers on the chunks.
func cut(layers, chunks int, visit func([]int)) {
	if chunks == 1 {
		visit([]int{layers})
		return
	}
	for first := range layers + 1 {
		cut(layers-first, chunks-1, func(rest []int) { visit(append([]int{first}, rest...)) })
	}
}

// load returns the largest cost of a rank and the sum of squares.
func load(costs LayerCosts, s LayoutSpec, counts []int) (largest, squares float64) {
	ranks := make([]float64, s.Ranks)
	for i, n := range counts {
		c := float64(n) * costs.Layer
		if i == 0 {
			c += costs.Embedding
		}
		if i == len(counts)-1 {
			c += costs.Head
		}
		ranks[s.Placement.Rank(i, s.Ranks)] += c
	}
	for _, c := range ranks {
		largest, squares = math.Max(largest, c), squares+c*c
	}
	return largest, squares
}

func FuzzParseLayout(f *testing.F) {
	for _, seed := range []string{
		"Et*3|(tt|)*29,m|L", "EtL", "E|*3(t*2|)*2L", "", "|", "((", "(t)*", "t*0", "t*65536", "(t*65536)*65536",
		"E(t|)L", "t*2*3", "Eé", "(|)*4", ",,,",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseLayout(text)
		if err != nil {
			if !errors.Is(err, ErrSyntax) {
				t.Fatalf("error %v is no ErrSyntax", err)
			}
			return
		}
		canonical := l.String()
		again, err := ParseLayout(canonical)
		if err != nil || !slices.EqualFunc(again.Chunks, l.Chunks, slices.Equal[[]Symbol]) {
			t.Fatalf("%q is written as %q and read back as %v, %v", text, canonical, again, err)
		}
		if again.String() != canonical {
			t.Fatalf("%q is written as %q, then as %q", text, canonical, again)
		}
		if err := l.Validate(LayoutSpec{Layers: 2, Ranks: len(l.Chunks), Chunks: 1}); err != nil && !errors.Is(err, ErrLayout) {
			t.Fatalf("error %v is no ErrLayout", err)
		}
	})
}

// TestBalancedMTP: multi-token prediction stands with the loss where it may, and
// weighs there.
func TestBalancedMTP(t *testing.T) {
	costs := LayerCosts{Layer: 1, Head: 1}
	for _, c := range []struct {
		want string
		spec LayoutSpec
		cost float64
	}{
		{"Et*4,mL", LayoutSpec{Layers: 4, MTPLayers: 1, Ranks: 1, Chunks: 1}, 1},
		{"Ett|t*3|mmL", LayoutSpec{Layers: 5, MTPLayers: 2, Ranks: 3, Chunks: 1}, 1},
		{"Et*3|ttmL", LayoutSpec{Layers: 5, MTPLayers: 1, Ranks: 2, Chunks: 1}, 0.5},
		{"Ett|tt|tm|L", LayoutSpec{Layers: 5, MTPLayers: 1, Ranks: 2, Chunks: 2, Placement: V}, 1},
		{"Ett|tt|m|L", LayoutSpec{Layers: 4, MTPLayers: 1, Ranks: 3, Chunks: 2, Placement: U}, 2},
		{"Et|tmL", LayoutSpec{Layers: 2, MTPLayers: 1, Ranks: 1, Chunks: 2, Placement: V}, 0},
		{"Ett|ttL", LayoutSpec{Layers: 4, Ranks: 2, Chunks: 1}, 9},
	} {
		chunks, err := c.spec.Placement.Chunks(c.spec.Ranks, c.spec.Chunks)
		if err != nil {
			t.Fatal(err)
		}
		l, err := BalancedLayout(costs, c.cost, c.spec, chunks)
		if err != nil {
			t.Fatalf("%+v: %v", c.spec, err)
		}
		want, err := ParseLayout(c.want)
		if err != nil || l.String() != want.String() {
			t.Errorf("%+v: %s, want %s, %v", c.spec, l, want, err)
		}
		if err := l.Validate(c.spec); err != nil {
			t.Errorf("%+v: %s: %v", c.spec, l, err)
		}
	}
	s := LayoutSpec{Layers: 1, MTPLayers: 1, Ranks: 1, Chunks: 1}
	for _, cost := range []float64{-1, math.NaN(), math.Inf(1)} {
		if _, err := BalancedLayout(costs, cost, s, 1); !errors.Is(err, ErrCosts) {
			t.Errorf("a cost of %v: %v, want ErrCosts", cost, err)
		}
	}
	for _, n := range []int{-1, MaxLayoutSymbols} {
		s.MTPLayers = n
		if _, err := BalancedLayout(costs, 1, s, 1); !errors.Is(err, ErrLayout) {
			t.Errorf("%d layers: %v, want ErrLayout", n, err)
		}
	}
}
