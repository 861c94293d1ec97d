package config

import (
	"strings"
	"testing"
)

// TestExperts: the keys of experts have the defaults of their family, and contradictions are refused by name.
func TestExperts(t *testing.T) {
	const text = "data.train = ['a.txt']\n"
	c := parse(t, text, "model.family=qwen3_moe", "model.hidden=64")
	if m := c.Model; m.Experts != 8 || m.ExpertsPerToken != 2 || m.ExpertFFN != m.FFN || m.AuxLossWeight != 0.001 {
		t.Errorf("%+v", m)
	}
	if m := parse(t, text, "model.family=mixtral", "model.experts=1").Model; m.ExpertsPerToken != 1 {
		t.Errorf("%+v", m)
	}
	if m := parse(t, text, "model.family=qwen3").Model; m.Experts != 0 || m.ExpertsPerToken != 0 || m.ExpertFFN != 0 {
		t.Errorf("%+v", m)
	}
	for _, c := range []struct {
		sets []string
		want string
	}{
		{[]string{"model.family=qwen3_moe", "model.experts=0"}, "model.experts: 0 is too few"},
		{[]string{"model.family=llama", "model.experts=4"}, "model.experts: 4 is set, but"},
		{[]string{"model.experts_per_token=2"}, "there are no experts"},
		{[]string{"model.expert_ffn=64"}, "there are no experts"},
		{[]string{"model.family=mixtral", "model.experts=4", "model.experts_per_token=5"}, "must be from 1 to"},
		{[]string{"model.family=mixtral", "model.experts_per_token=0"}, "must be from 1 to"},
		{[]string{"model.family=qwen3_moe", "model.expert_ffn=0"}, "is too small"},
		{[]string{"model.family=mixtral", "model.expert_ffn=64"}, "in mixtral they are the same"},
		{[]string{"model.family=qwen3_moe", "model.experts=5000"}, "4096"},
	} {
		_, err := Parse("config.toml", []byte(text), c.sets, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.sets, err, c.want)
		}
	}
}
