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
