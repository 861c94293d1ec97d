package forecast

import (
	"math"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/bench"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
)

// TestMeasuredKinds: of a model whose first layers are dense, layers with experts are measured, too, and stand for most of the model.
func TestMeasuredKinds(t *testing.T) {
	b := resolved(t, "model.family=deepseek_v3", "model.layers=14", "model.first_k_dense_replace=3", "batch.microbatch=1")
	model, err := trainedModel(b)
	if err != nil {
		t.Fatal(err)
	}
	if kinds := kindsOf(model); len(kinds) != 2 || !slices.Equal(kinds[1], []int{1, 2, 3}) || len(kinds[0]) != 11 {
		t.Fatalf("kinds %d", kinds)
	}
	for _, c := range []struct {
		decoders int
		want     map[int]int
	}{
		{1, map[int]int{9: 0}},
		{2, map[int]int{2: 1, 9: 0}},
		{6, map[int]int{1: 1, 3: 1, 5: 0, 8: 0, 10: 0, 13: 0}},
		{20, map[int]int{1: 1, 2: 1, 3: 1, 4: 0, 5: 0, 6: 0, 7: 0, 8: 0, 9: 0, 10: 0, 11: 0, 12: 0, 13: 0, 14: 0}},
	} {
		got := (&sample{model: model, decoders: c.decoders}).measures()
		if len(got) != len(c.want) {
			t.Errorf("of %d layers %v are measured, want %v", c.decoders, got, c.want)
		}
		for layer, kind := range c.want {
			if of, measured := got[layer]; !measured || of != kind {
				t.Errorf("of %d layers %v are measured, want %v", c.decoders, got, c.want)
			}
		}
	}
	if _, of := sampled(t, b); of.decoders != mostDecoders {
		t.Errorf("%d layers of a small model are measured", of.decoders)
	}
	c, err := Measure(t.Context(), b, []int{1}, 1e-9, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := Predict(b, c, Devices{Devices: 1}); err != nil || !(p.StepMS > 0) {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestCostsOfKinds: the costs of a mean layer are those of each kind, by its part of the operations.
func TestCostsOfKinds(t *testing.T) {
	times := func(ms ...float64) (all [scheduler.B + 1][]float64) {
		for i := range all {
			all[i] = ms
		}
		return all
	}
	m := &meter{parts: []float64{9, 3}, microbatch: stages.Microbatch{Sequences: 2}, chunks: []meterChunk{
		{symbol: scheduler.SymbolEmbedding, times: times(7)},
		{symbol: scheduler.SymbolLayer, kind: 1, times: times(1, 1, 1)},
		{symbol: scheduler.SymbolLayer, kind: 0, times: times(5, 6)},
		{symbol: scheduler.SymbolLayer, kind: 0, times: times(4, 5)},
	}}
	got := m.costs(median)
	if l := got.Layers["t"]; got.Layers["E"].ForwardMS != 7 || l.ForwardMS != (9*5+3*1)/12.0 || l.BackwardMS != 1.5*(9*5+3*1)/12 ||
		math.Abs(l.InputGradMS+l.WeightGradMS-l.BackwardMS) > 1e-12 {
		t.Errorf("%+v", got.Layers)
	}
	m.chunks = m.chunks[:2] // the common kind is missing
	if l := m.costs(median).Layers["t"]; l.ForwardMS != 1 {
		t.Errorf("of one kind: %+v", l)
	}
}

// TestKindsByWindow: layers with a window are another kind.
func TestKindsByWindow(t *testing.T) {
	cfg, err := tiny("model.family=gemma3_text", "model.window=4", "model.layers=6", "model.kv_heads=2")(bench.SizesOnly)
	if err != nil {
		t.Fatal(err)
	}
	b, err := plan.New(cfg, 40, stages.Config{Family: stages.Gemma3, Context: 8, Full: []int{5}})
	if err != nil {
		t.Fatal(err)
	}
	if kinds := kindsOf(b.Model()); len(kinds) != 2 || !slices.Equal(kinds[0], []int{1, 2, 3, 4, 5}) || !slices.Equal(kinds[1], []int{6}) {
		t.Errorf("kinds %d", kinds)
	}
}
