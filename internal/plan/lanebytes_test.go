package plan

import (
	"slices"
	"strings"
	"testing"
)

// TestLaneBytes: ranks share memory with those on their host to which they send, in other processes: what may be under way at a time, up to
// the memory of all streams.
func TestLaneBytes(t *testing.T) {
	const big = "batch.microbatch=6 model.context=256 model.hidden=256 model.heads=4 model.tie_embeddings=false "
	for _, c := range []struct {
		name, sets, sites string
		shadows           []int
		want              func(p *Plan, edge int64) []int64
	}{
		{"a pipeline", big + "pipeline.stages=3", "a0 b0 c0", nil,
			func(_ *Plan, edge int64) []int64 { return []int64{edge, 2 * edge, edge} }},
		{"two hosts", big + "pipeline.stages=3", "a0 b0 c1", nil,
			func(_ *Plan, edge int64) []int64 { return []int64{edge, edge, 0} }},
		{"one process", big + "pipeline.stages=3", "a0 a0 a0", nil, func(*Plan, int64) []int64 { return []int64{0, 0, 0} }},
		{"two in a process", big + "pipeline.stages=3", "a0 b0 b0", nil,
			func(_ *Plan, edge int64) []int64 { return []int64{edge, edge, 0} }},
		{"messages that are too small", "pipeline.stages=2", "a0 b0", nil, func(*Plan, int64) []int64 { return []int64{0, 0} }},
		{"replicas", big + "parallel.data=2", "a0 b0", nil, func(p *Plan, _ int64) []int64 {
			n := 4 * p.Trained()[0] / 2
			return []int64{n, n}
		}},
		{"tensor groups", big + "parallel.tensor=2", "a0 b0", nil,
			func(_ *Plan, edge int64) []int64 { return []int64{edge / 2, edge / 2} }},
		{"whole experts", big + "model.family=qwen3_moe parallel.tensor=2 parallel.expert_tensor=1 parallel.expert=2", "a0 b0", nil,
			func(p *Plan, edge int64) []int64 {
				n := edge / 2 * int64(1+p.model.Config.Experts.PerToken)
				return []int64{n, n}
			}},
		{"shadows", big + "pipeline.stages=2", "a0 b0", []int{1, 0}, func(p *Plan, edge int64) []int64 {
			return []int64{edge + 4*p.Trained()[0], edge + 4*p.Trained()[1]}
		}},
		{"more than all streams have", big + "pipeline.stages=2 model.hidden=2048 model.heads=8", "a0 b0", []int{1, 0},
			func(*Plan, int64) []int64 { return []int64{MostLaneBytes, MostLaneBytes} }},
	} {
		p, err := gridPlan(t, strings.Fields(c.sets)...)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, err := p.LaneBytes(sites(c.sites), Shadows{At: c.shadows})
		edge := int64(4 * p.cfg.Batch.Microbatch * p.cfg.Model.Context * p.cfg.Model.Hidden)
		if want := c.want(p, edge); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %d bytes, want %d, %v", c.name, got, want, err)
		}
	}
	p, err := gridPlan(t, strings.Fields(big+"model.family=qwen3_moe parallel.data=2 parallel.context=2 parallel.expert=4 "+
		"pipeline.stages=2")...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := p.LaneBytes(sites("a0 b0 c0 d0 e0 f0 g0 h0"), Shadows{})
	if err != nil || slices.Min(all) < 3*leastLaneBytes || slices.Max(all) > 4*MostLaneBytes {
		t.Errorf("with groups of all kinds: %d bytes, %v", all, err)
	}
}
