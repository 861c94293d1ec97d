package plan_test

import "testing"

// TestTensorExperts: tensor groups divide experts, unless their widths do not divide or the attention is latent.
func TestTensorExperts(t *testing.T) {
	for _, c := range []struct {
		sets []string
		want []string // nil: it is planned
	}{
		{[]string{"model.family=qwen3_moe"}, nil},
		{[]string{"model.family=mixtral", "parallel.sequence=true", "parallel.data=2", "parallel.zero=2", "pipeline.stages=2"}, nil},
		{[]string{"model.family=gpt_oss", "parallel.tensor=[2, 1]", "pipeline.stages=2"}, nil},
		{[]string{"model.family=qwen2_moe", "optimizer.name=muon"}, nil},
		{[]string{"model.family=qwen3_moe", "model.expert_ffn=33"},
			[]string{"parallel.tensor", "stage 0", "tensor parallelism of 2: it does not divide the width of an expert, 33"}},
		{[]string{"model.family=deepseek_v3"}, []string{"parallel.tensor", "it is not supported with latent attention"}},
	} {
		checkPlan(t, append([]string{"optimizer.name=adamw", "parallel.tensor=2"}, c.sets...), c.want)
	}
}
