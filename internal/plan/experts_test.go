package plan_test

import "testing"

// TestExpertGroupsRefused: groups that cannot share the experts are refused at their key.
func TestExpertGroupsRefused(t *testing.T) {
	for _, c := range []struct {
		sets []string // beside two replicas
		want []string
	}{
		{[]string{"model.family=qwen3_moe", "parallel.expert=2"}, nil},
		{[]string{"model.family=gpt_oss", "parallel.expert=2"}, []string{"parallel.expert", "experts with biases, as gpt_oss has them"}},
		{[]string{"model.family=qwen3_moe", "model.experts=3", "parallel.expert=2"},
			[]string{"parallel.expert", "does not divide model.experts = 3"}},
		{[]string{"model.family=llama", "parallel.expert=2"}, []string{"parallel.expert"}},
	} {
		checkPlan(t, append([]string{"optimizer.name=adamw", "parallel.data=2"}, c.sets...), c.want)
	}
}
