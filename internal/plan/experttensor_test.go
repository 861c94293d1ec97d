package plan_test

import (
	"math"
	"slices"
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

// TestWholeExperts: ranks of tensor groups may have whole experts, in all that plans know, unless the model has none or a rank is on a GPU.
func TestWholeExperts(t *testing.T) {
	for _, c := range []struct {
		sets []string
		want []string // nil: it is planned
	}{
		{[]string{"model.family=qwen3_moe", "model.expert_ffn=33"}, nil},
		{[]string{"model.family=mixtral", "parallel.sequence=true", "parallel.data=2", "parallel.zero=2", "pipeline.stages=2",
			"parallel.expert=4"}, nil},
		{[]string{"model.family=deepseek_v3", "optimizer.name=muon", "parallel.data=2", "parallel.expert=2"}, nil},
		{[]string{"model.family=gpt_oss", "parallel.context=2", "parallel.expert=4"}, nil},
		{[]string{"model.family=qwen3_moe", "model.context=63"}, []string{"parallel.expert_tensor", "63 positions", "a multiple of 2"}},
		{[]string{"model.family=qwen3_moe", "device.kind=cuda"}, []string{"parallel.expert_tensor", "stage 0 is on a GPU"}},
		{[]string{"model.family=llama"}, []string{"parallel.expert_tensor", "no experts"}},
	} {
		checkPlan(t, append([]string{"optimizer.name=adamw", "parallel.tensor=2", "parallel.expert_tensor=1"}, c.sets...), c.want)
	}
}

// TestWholeExpertTwins: of the ranks of tensor groups with whole experts, those with the same experts and the same slices of all else can
// take each other's place; if there are none, shadows can.
func TestWholeExpertTwins(t *testing.T) {
	for _, c := range []struct {
		expert string
		twins  []int // of rank 1
	}{{"parallel.expert=1", []int{1, 3}}, {"parallel.expert=2", []int{1, 3}}, {"parallel.expert=4", []int{1}}} {
		p, err := muonPlan(t, "optimizer.name=adamw", "model.family=qwen3_moe", "parallel.tensor=2", "parallel.data=2",
			"parallel.expert_tensor=1", c.expert)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.CheckRenewal(); err != nil {
			t.Error(err)
		}
		if twins := p.Twins(1); !slices.Equal(twins, c.twins) || p.Replicated() != (len(c.twins) > 1) {
			t.Errorf("%s: rank 1 has the twins %v, want %v", c.expert, twins, c.twins)
		}
		if len(c.twins) == 1 {
			if err := p.CheckShadows(); err != nil {
				t.Error(err)
			}
			if bytes, err := p.ShadowBytes(); err != nil || len(bytes) != 4 || bytes[0] <= 0 {
				t.Errorf("shadows of %d bytes: %v", bytes, err)
			}
		}
	}
}

// TestTensorExpertCopies: the copies that the ranks of tensor groups make for a checkpoint have all of it once, with the experts divided
// among expert groups or whole, and a rank has its part of the experts.
func TestTensorExpertCopies(t *testing.T) {
	sets := []string{"optimizer.name=adamw", "model.family=qwen3_moe", "model.experts=8", "parallel.tensor=2", "parallel.data=4"}
	for _, c := range []struct {
		expert, tensor string
		copies         int // ranks that make one
	}{{"parallel.expert=1", "", 2}, {"parallel.expert=2", "", 4}, {"parallel.expert=4", "", 8},
		{"parallel.expert=1", "parallel.expert_tensor=1", 2}, {"parallel.expert=4", "parallel.expert_tensor=1", 4},
		{"parallel.expert=8", "parallel.expert_tensor=1", 8}} {
		own := append(slices.Clone(sets), c.expert)
		if c.tensor != "" {
			own = append(own, c.tensor)
		}
		p, err := muonPlan(t, own...)
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
			t.Errorf("%s %s: copies of %d bytes, together %d of a checkpoint of %d; want %d", c.expert, c.tensor, copies, sum(copies),
				whole, c.copies)
		}
	}
}
