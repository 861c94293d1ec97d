package config

import "testing"

func TestRegrouped(t *testing.T) {
	for _, c := range []struct {
		was, is []string
		want    string
	}{
		{nil, []string{"pipeline.stages=2", "parallel.tensor=[1, 1]"}, ""},
		{[]string{"parallel.data=2"}, []string{"parallel.data=2", "parallel.zero=1", "pipeline.stages=2", "parallel.order=dp-pp-tp"}, ""},
		{[]string{"parallel.data=2", "model.family=mixtral"}, []string{"parallel.data=2", "model.family=mixtral", "parallel.expert=2"}, ""},
		{[]string{"parallel.tensor=2"}, []string{"pipeline.stages=2", "parallel.tensor=[2, 2]"}, ""},
		{[]string{"parallel.tensor=2"}, []string{"parallel.data=2"},
			"was trained with tp 2 × cp 1 × dp 1 and continues with tp 1 × cp 1 × dp 2"},
		{[]string{"parallel.tensor=2"}, []string{"parallel.tensor=2", "parallel.sequence=true"},
			"was trained with tp 2 × cp 1 × dp 1 and continues with tp 2 with shared positions × cp 1 × dp 1"},
		{[]string{"parallel.tensor=2", "model.family=mixtral", "parallel.expert_tensor=1"}, []string{"parallel.tensor=2",
			"model.family=mixtral", "parallel.expert_tensor=1", "parallel.expert=2"}, ""},
		{[]string{"parallel.tensor=2", "model.family=mixtral", "parallel.expert_tensor=2"}, []string{"parallel.tensor=2",
			"model.family=mixtral", "parallel.expert_tensor=1"}, "was trained with tp 2 × cp 1 × dp 1 and continues with " +
			"tp 2 with whole experts × cp 1 × dp 1"},
		{[]string{"parallel.tensor=2", "parallel.data=2", "model.family=mixtral", "parallel.expert_tensor=1"},
			[]string{"parallel.tensor=2", "parallel.data=2", "model.family=mixtral", "parallel.expert_tensor=1", "parallel.order=dp-pp-tp"},
			"was trained with tp 2 with whole experts × cp 1 × dp 2 and continues with tp 2 with whole experts × cp 1 × dp 2 in the " +
				"order dp-tp"},
		{[]string{"parallel.tensor=2", "parallel.data=2", "model.family=mixtral"},
			[]string{"parallel.tensor=2", "parallel.data=2", "model.family=mixtral", "parallel.order=dp-tp"}, ""},
		{[]string{"parallel.tensor=2", "model.family=mixtral", "parallel.expert_tensor=1", "pipeline.stages=2"}, []string{
			"parallel.tensor=2", "model.family=mixtral", "parallel.expert_tensor=1", "pipeline.stages=2", "parallel.order=pp-tp"}, ""},
		{[]string{"parallel.context=2", "parallel.data=2", "parallel.order=dp-cp"}, []string{"parallel.context=2", "parallel.data=2"},
			"was trained with tp 1 × cp 2 × dp 2 in the order dp-cp and continues with tp 1 × cp 2 × dp 2"},
		{nil, []string{"parallel.tensor=[1, 2]", "pipeline.stages=2"},
			"was trained with tp 1 × cp 1 × dp 1 and continues with tp [1 2] × cp 1 × dp 1"},
	} {
		load := func(sets []string) *Config {
			cfg, err := Parse("run.toml", []byte("[data]\ntrain = [\"x\"]\n[batch]\nsequences = 8\nmicrobatch = 1\n"), sets, nil)
			if err != nil {
				t.Fatal(err)
			}
			return cfg
		}
		if got := Regrouped(load(c.was), load(c.is)); got != c.want {
			t.Errorf("%v to %v: %q, want %q", c.was, c.is, got, c.want)
		}
	}
}
