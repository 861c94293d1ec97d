package config

import (
	"slices"
	"strings"
	"testing"
)

// TestExpertGroups: what ranks that share experts cannot do is refused by name.
func TestExpertGroups(t *testing.T) {
	base := []string{"model.family=qwen3_moe", "parallel.data=4", "parallel.expert=4", "batch.sequences=8", "batch.microbatch=1"}
	parse := func(sets ...string) error {
		_, err := Parse("test.toml", []byte("data.train = ['a.txt']"), slices.Concat(base, sets), nil)
		return err
	}
	for _, sets := range [][]string{nil, {"model.family=gpt_oss"}, {"model.from=base", "adapter.rank=4"}} {
		if err := parse(sets...); err != nil {
			t.Fatalf("%q: %v", sets, err)
		}
	}
	for _, sets := range [][]string{{"parallel.zero=3"}, {"parallel.zero=3", "parallel.expert=2", "parallel.expert_overlap=true"}} {
		if err := parse(sets...); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct{ set, want string }{
		{"parallel.expert=3", "the 4 ranks with the same layers"},
		{"parallel.expert=0", "parallel.expert"},
		{"model.family=qwen3", "the model has no experts"},
		{"model.experts=6", "does not divide"},
		{"batch.sequences=6", "equally many microbatches"},
		{"pipeline.post_validation=true", "post_validation"},
		{"optimizer.state_dtype=int8", "state_dtype"},
	} {
		if err := parse(c.set, "pipeline.stages=2", "pipeline.schedule=zb-h2"); err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "parallel.expert") {
			t.Errorf("%s: error %v, want %q", c.set, err, c.want)
		}
	}
}

// TestExpertTensor: experts of a tensor group are whole or divided by all its ranks, and what ranks with whole experts cannot do is refused
// by name.
func TestExpertTensor(t *testing.T) {
	parse := func(sets ...string) (*Config, error) {
		return Parse("test.toml", []byte("data.train = ['a.txt']"), append([]string{"model.family=qwen3_moe", "parallel.tensor=2",
			"parallel.data=2", "batch.sequences=8", "batch.microbatch=1"}, sets...), nil)
	}
	for _, c := range []struct {
		sets  []string
		whole bool
	}{
		{nil, false},
		{[]string{"parallel.expert_tensor=2"}, false},
		{[]string{"parallel.expert_tensor=1"}, true},
		{[]string{"parallel.expert_tensor=1", "parallel.expert=4", "parallel.zero=2", "parallel.expert_overlap=true"}, true},
		{[]string{"parallel.expert_tensor=1", "parallel.tensor=1"}, false},
		{[]string{"parallel.expert_tensor=1", "parallel.zero=3"}, true},
		{[]string{"parallel.expert_tensor=1", "parallel.data=1", "parallel.expert=2"}, true},
	} {
		if cfg, err := parse(c.sets...); err != nil || cfg.WholeExperts() != c.whole {
			t.Errorf("%q: %v, want whole experts: %v", c.sets, err, c.whole)
		}
	}
	for _, c := range []struct {
		sets []string
		want string
	}{
		{[]string{"parallel.expert_tensor=4"}, "is neither 1 nor parallel.tensor = 2"},
		{[]string{"parallel.expert_tensor=2", "parallel.tensor=[1, 2]", "pipeline.stages=2"}, "is neither 1 nor parallel.tensor"},
		{[]string{"parallel.expert_tensor=1", "parallel.tensor=[1, 2]", "pipeline.stages=2"}, "needs one size of the tensor groups"},
		{[]string{"parallel.expert_tensor=1", "model.family=qwen3"}, "the model has no experts"},
		{[]string{"parallel.expert_tensor=1", "parallel.expert=3"}, "the 4 ranks with the same layers (parallel.tensor × parallel.data"},
		{[]string{"parallel.expert_tensor=1", "pipeline.post_validation=true", "pipeline.stages=2", "pipeline.schedule=zb-h2"},
			"post_validation may stop a rank"},
	} {
		if _, err := parse(c.sets...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.sets, err, c.want)
		}
	}
}
