package forecast

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/tensorops"
)

// manyExperts is a model of two layers whose weights are nearly all of its 64 experts, with some keys set. Its one head leaves no tensor
// groups.
func manyExperts(t *testing.T, sets ...string) *plan.Plan {
	t.Helper()
	return resolved(t, append([]string{"model.family=qwen3_moe", "model.layers=2", "model.heads=1", "model.kv_heads=1", "model.experts=64",
		"model.experts_per_token=2", "model.expert_ffn=32", "batch.sequences=8", "batch.microbatch=1"}, sets...)...)
}

// TestRecommendExperts: a model with many experts under a small memory for each device fits only if ranks share the experts, whatever
// replicas share by ZeRO: each rank would have a layer's weights and their gradients at a time.
func TestRecommendExperts(t *testing.T) {
	costs := unitCosts(1)
	need := func(sets ...string) int64 {
		t.Helper()
		o, err := Configured(manyExperts(t, sets...), costs, Devices{Devices: 8, BytesPerS: 1e9})
		if err != nil {
			t.Fatal(err)
		}
		return o.NeedBytes()
	}
	shared := []string{"pipeline.stages=2", "pipeline.schedule=1f1b", "parallel.data=4", "parallel.expert=4"}
	limit := need(shared...) * 105 / 100
	for _, zero := range []string{"1", "2", "3"} {
		for _, sets := range [][]string{{"parallel.data=8"}, {"pipeline.stages=2", "parallel.data=4"},
			{"pipeline.stages=4", "parallel.data=2"}} {
			if bytes := need(append(sets, "parallel.zero="+zero, "pipeline.recompute=full")...); bytes <= limit {
				t.Fatalf("%v with zero %s needs %d bytes, no more than the %d of %v", sets, zero, bytes, limit, shared)
			}
		}
	}
	p, err := Recommend(t.Context(), manyExperts(t), costs, Devices{Devices: 8, MemoryBytes: limit, BytesPerS: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	if p.Best == nil || p.Best.Expert < 2 || p.Best.NeedBytes() > limit || !(p.Best.ExpertMS > 0) {
		t.Fatalf("in %d bytes: %+v, want a grid with expert groups", limit, p.Best)
	}
	for _, o := range p.ByGrid {
		if o.Expert < 2 {
			t.Errorf("fits without expert groups: %+v", o)
		}
	}
	cfg := p.Best.Plan().Config().Parallel
	if p.Best.Expert != cfg.Expert || p.Best.Overlap != cfg.ExpertOverlap {
		t.Errorf("%+v is not of %+v", p.Best, cfg)
	}
	t.Logf("%d options; dp%d cp%d ep%d pp%d zero%d %s overlap %v: %d of %d bytes", p.Tried, p.Best.Data, p.Best.Context, p.Best.Expert,
		p.Best.Stages, p.Best.Zero, p.Best.Schedule, p.Best.Overlap, p.Best.NeedBytes(), limit)
}

// TestExpertsByNetwork: if all experts fit everywhere, ranks share them where that is faster: they exchange tokens, but sum the gradients
// of experts over fewer ranks.
func TestExpertsByNetwork(t *testing.T) {
	for _, c := range []struct {
		name   string
		sets   []string
		d      Devices
		shares bool
	}{
		{"few tokens and many weights", nil, Devices{Devices: 4, BytesPerS: 1e8}, true},
		{"a network with latency", nil, Devices{Devices: 4, LatencyUS: 1e5}, false},
		{"many tokens and few weights", []string{"model.experts=4", "model.expert_ffn=4", "batch.sequences=256"},
			Devices{Devices: 4, BytesPerS: 1e6}, false},
	} {
		p, err := Recommend(t.Context(), manyExperts(t, c.sets...), unitCosts(1), c.d)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: dp%d cp%d ep%d pp%d, %v ms", c.name, p.Best.Data, p.Best.Context, p.Best.Expert, p.Best.Stages, p.Best.StepMS)
		if p.Best.Expert > 1 != c.shares {
			t.Errorf("%s: %+v, shares experts: want %v", c.name, p.Best, c.shares)
		}
	}
}

// TestExpertCandidates: a model with experts has at most three times as many candidates as one without, and expert groups are divisors
// of the number of experts and of the ranks with the same layers.
func TestExpertCandidates(t *testing.T) {
	searching := func(b *plan.Plan, d Devices) *search {
		return &search{costs: unitCosts(1, 2), cluster: d, base: *b.Config(), model: b.Model(), experts: expertsOf(b.Model()),
			trained: b.Model().Parameters(), state: 8 * b.Model().Parameters()}
	}
	d := Devices{Devices: 16, BytesPerS: 1e6}
	with := searching(manyExperts(t, "model.experts=12", "batch.sequences=32"), d)
	dense := searching(resolved(t, "model.family=qwen3", "model.layers=2", "model.heads=1", "model.kv_heads=1", "batch.sequences=32",
		"batch.microbatch=1"), d)
	all, none := with.candidates(), dense.candidates()
	if len(all) <= len(none) || len(all) > 3*len(none) {
		t.Errorf("%d candidates, without experts %d", len(all), len(none))
	}
	overlapped := false
	for _, c := range all {
		if 12%c.expert != 0 || c.context*c.data%c.expert != 0 {
			t.Errorf("%+v", c)
		}
		overlapped = overlapped || c.overlap
	}
	if !overlapped {
		t.Error("none overlaps exchanges")
	}
	for _, c := range none {
		if c.expert != 1 || c.overlap {
			t.Errorf("without experts: %+v", c)
		}
	}
	// In a memory that holds a third of the experts' weights and state with all gradients, smaller groups are left out.
	x := with.experts
	d.MemoryBytes = 4*with.trained + int64(12*x.weights/3) + 12*(with.trained-int64(x.weights)) + 100
	tight := searching(manyExperts(t, "model.experts=12", "batch.sequences=32"), d)
	replicas := shape{tensor: 1, context: 1, data: 12, expert: 1, stages: 1}
	if sizes, fits := tight.expertSizes(replicas); !fits || !slices.Equal(sizes, []int{3, 4, 6, 12}) {
		t.Errorf("sizes %v, fits: %v", sizes, fits)
	}
	d.MemoryBytes = 1
	if sizes, fits := searching(manyExperts(t), d).expertSizes(replicas); fits || !slices.Equal(sizes, []int{1, 2, 4}) {
		t.Errorf("in a byte: sizes %v, fits: %v", sizes, fits)
	}
	for _, g := range []shape{{tensor: 2, context: 2, data: 4, stages: 3, expert: 4},
		{tensor: 2, context: 2, data: 4, stages: 3, expert: 8, whole: true}} {
		sizes := grid.Sizes{Tensor: []int{2}, Context: 2, Pipeline: 3, Data: 4, Expert: g.expert}
		if g.whole {
			sizes.ExpertTensor = 1
		}
		made, err := grid.New(sizes)
		if err != nil {
			t.Fatal(err)
		}
		group, copies := made.Group(0, grid.Expert), made.Group(0, grid.ExpertCopies)
		if !slices.Equal(g.expertGroup(), group) || !slices.Equal(g.expertCopies(), copies) {
			t.Errorf("%+v: expert group %d and ranks with the same experts %d, of the grid %d and %d", g, g.expertGroup(),
				g.expertCopies(), group, copies)
		}
	}
}

// TestRecommendWholeExperts: the search tries whole experts in tensor groups, with expert groups that span them, also where tensor groups
// cannot divide the width of an expert.
func TestRecommendWholeExperts(t *testing.T) {
	for _, width := range []string{"32", "33"} {
		b := manyExperts(t, "model.heads=4", "model.kv_heads=4", "model.expert_ffn="+width, "batch.sequences=1")
		p, err := Recommend(t.Context(), b, unitCosts(1), Devices{Devices: 4, BytesPerS: 1e8})
		if err != nil {
			t.Fatal(err)
		}
		whole, divided := 0, 0
		for _, o := range p.ByGrid {
			switch cfg := o.Plan().Config(); {
			case o.Tensor > 1 && !o.WholeExperts:
				divided++
			case o.WholeExperts && o.Expert > o.Context*o.Data:
				whole++
				if !cfg.WholeExperts() || cfg.Parallel.Expert != o.Expert || !(o.ExpertMS > 0) {
					t.Errorf("%+v is not of %+v", o, cfg.Parallel)
				}
			}
		}
		if !p.Best.WholeExperts {
			t.Errorf("width %s: the best grid is %+v", width, p.Best)
		}
		if whole == 0 || divided > 0 != (width == "32") {
			t.Errorf("width %s: %d grids with whole experts, %d with divided ones", width, whole, divided)
		}
	}
}

// TestExpertImbalance: ranks wait for the one with the most tokens, which computes and exchanges more of them, up to all of its group.
// Without groups each rank has its own tokens, however many go to one expert.
func TestExpertImbalance(t *testing.T) {
	step := func(imbalance float64, sets ...string) float64 {
		t.Helper()
		p, err := Predict(manyExperts(t, append([]string{"parallel.data=2"}, sets...)...), unitCosts(1),
			Devices{Devices: 4, BytesPerS: 1e7, ExpertImbalance: imbalance})
		if err != nil {
			t.Fatal(err)
		}
		return p.StepMS
	}
	for _, sets := range [][]string{{"parallel.expert=2"}, {"parallel.expert=2", "parallel.expert_overlap=true"},
		{"parallel.expert=2", "parallel.context=2"}} {
		even, uneven, all := step(0, sets...), step(1.5, sets...), step(2, sets...)
		if step(1, sets...) != even || uneven <= even || all <= uneven || step(50, sets...) != all {
			t.Errorf("%v: %v ms, %v with 1.5 times the tokens on a rank, %v with twice as many", sets, even, uneven, all)
		}
	}
	if even, uneven := step(0), step(1.5); even != uneven {
		t.Errorf("without groups: %v ms and %v", even, uneven)
	}
}

// TestExpertRows: the products of experts are counted for the rows that they compute, not for those for which there is room.
func TestExpertRows(t *testing.T) {
	flops := func(sets ...string) (all float64) {
		t.Helper()
		b := manyExperts(t, sets...)
		err := b.Record(0, func(_ int, _ plan.Pass, ops []tensorops.Op) {
			for i := range ops {
				w, _ := expertWork(&ops[i], expertRows(b))
				all += w
			}
		}, func(_, _ []tensorops.Op) {})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for _, perToken := range []string{"1", "2", "7"} {
		key, batch := "model.experts_per_token="+perToken, "batch.sequences=32"
		whole := flops(key, batch, "parallel.data=32")
		for _, groups := range []string{"2", "32"} {
			if got := flops(key, batch, "parallel.data=32", "parallel.expert="+groups); math.Abs(got/whole-1) > 1e-9 || whole == 0 {
				t.Errorf("%s experts for a token, groups of %s: %v, want %v", perToken, groups, got, whole)
			}
		}
	}
}

// TestExpertContext: expert groups may span context groups.
func TestExpertContext(t *testing.T) {
	for _, sets := range []string{"parallel.context=2 parallel.expert=2", "parallel.context=2 parallel.data=2 parallel.expert=4",
		"parallel.context=2 parallel.expert=2 pipeline.stages=2"} {
		p, err := Predict(manyExperts(t, strings.Fields(sets)...), unitCosts(1), Devices{Devices: 4, BytesPerS: 1e8})
		if err != nil || !(p.ExpertMS > 0) || !(p.ContextMS > 0) {
			t.Errorf("%s: %+v, %v", sets, p, err)
		}
	}
}

// TestEndOfExperts: a rank updates its part of the experts and of all else, and adds the gradients of experts that it has for each rank of
// its group, or with whole experts for each rank with the same ones.
func TestEndOfExperts(t *testing.T) {
	costs := &Costs{UpdateNS: 1000, AddNS: 10}
	for _, c := range []struct {
		sets          string
		rest, experts float64 // ranks that share the update of all else, and of each expert or of all of them
		adds          float64 // of all gradients of experts
	}{
		{"", 2, 2, 0},
		{"parallel.expert=2", 2, 4, 0.5},
		{"parallel.expert=2 parallel.zero=1", 4, 4, 0.5},
		{"parallel.expert_tensor=1", 2, 1, 1},
		{"parallel.expert_tensor=1 parallel.expert=2", 2, 2, 1},
		{"parallel.expert_tensor=1 parallel.expert=4", 2, 4, 1},
		{"parallel.expert_tensor=1 parallel.expert=2 parallel.zero=1", 4, 4, 1},
	} {
		b := manyExperts(t, append(strings.Fields(c.sets), "model.heads=2", "model.kv_heads=2", "parallel.tensor=2", "parallel.data=2")...)
		weights, x := b.Trained()[0], b.TrainedExperts(0)
		rest := float64(weights) - x
		want := 1e-3 * (float64(weights)/8/4 + 7.0/8*(rest/c.rest+x/c.experts)) // an eighth of it are norms, of a part for each rank
		want += 4 * 1e-5 * x * c.adds
		var within byDimension
		if got := (grouped{}).endMS(b, 0, weights, costs, &within); x == 0 || rest == 0 || math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%q: %v ms for %v weights of experts and %v others, want %v", c.sets, got, x, rest, want)
		}
	}
}

// TestRecommendKeepsWholeExperts: the search keeps parallel.expert_tensor = 1.
func TestRecommendKeepsWholeExperts(t *testing.T) {
	b := resolved(t, "model.family=qwen3_moe", "parallel.tensor=2", "parallel.expert_tensor=1")
	p, err := Recommend(t.Context(), b, unitCosts(1), Devices{Devices: 2, BytesPerS: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	tensor := 0
	for _, o := range p.ByGrid {
		if o.Tensor == 2 {
			tensor++
		}
		if o.Tensor == 2 && !o.WholeExperts {
			t.Errorf("the search tries divided experts: %+v", o)
		}
	}
	if tensor == 0 {
		t.Errorf("the search has no tensor groups, of %d options", p.Tried)
	}
}
