package plan_test

import (
	"math"
	"testing"
)

// TestTensorExperts: tensor groups divide experts, unless their widths do not divide.
func TestTensorExperts(t *testing.T) {
	for _, c := range []struct {
		sets []string
		want []string // nil: it is planned
	}{
		{[]string{"model.family=qwen3_moe"}, nil},
		{[]string{"model.family=mixtral", "parallel.sequence=true", "parallel.data=2", "parallel.zero=2", "pipeline.stages=2"}, nil},
		{[]string{"model.family=gpt_oss", "parallel.tensor=[2, 1]", "pipeline.stages=2"}, nil},
		{[]string{"model.family=qwen2_moe", "optimizer.name=muon"}, nil},
		{[]string{"model.family=qwen2_moe", "parallel.data=4", "parallel.expert=2", "pipeline.stages=2"}, nil},
		{[]string{"model.family=qwen3_moe", "model.expert_ffn=33"},
			[]string{"parallel.tensor", "stage 0", "tensor parallelism of 2: it does not divide the width of an expert, 33"}},
		{[]string{"model.family=deepseek_v3"}, nil},
	} {
		checkPlan(t, append([]string{"optimizer.name=adamw", "parallel.tensor=2"}, c.sets...), c.want)
	}
}

// TestTensorExpertCopies: the copies that the ranks of tensor groups make for a checkpoint have all of it once, with the experts divided
// among expert groups or whole, and a rank has its part of the experts.
func TestTensorExpertCopies(t *testing.T) {
	sets := []string{"optimizer.name=adamw", "model.family=qwen3_moe", "model.experts=8", "parallel.tensor=2", "parallel.data=4"}
	for _, c := range []struct {
		expert string
		copies int // ranks that make one
	}{{"parallel.expert=1", 2}, {"parallel.expert=2", 4}, {"parallel.expert=4", 8}} {
		p, err := muonPlan(t, append(sets, c.expert)...)
		if err != nil {
			t.Fatal(err)
		}
		whole, copies := copied(t, p)
		making := 0
		for _, b := range copies {
			if b > 0 {
				making++
			}
		}
		if d := math.Abs(float64(sum(copies) - whole)); d > 0.001*float64(whole) || making != c.copies {
			t.Errorf("%s: copies of %d bytes, together %d of a checkpoint of %d; want %d", c.expert, copies, sum(copies), whole, c.copies)
		}
	}
}
