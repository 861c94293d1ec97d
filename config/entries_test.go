package config

import (
	"slices"
	"testing"
)

// TestEntries: a run's stored configuration has a value for every key, and the keys that a user has set are known from it.
func TestEntries(t *testing.T) {
	for _, tc := range []struct{ sets, want []string }{
		{nil, []string{"data.train"}},
		{[]string{"optimizer.lr=3e-3"}, []string{"data.train", "optimizer.lr"}}, // min_lr follows
		{[]string{"run.name=x", "run.steps=60"}, []string{"run.name", "run.steps", "data.train"}},
		{[]string{"pipeline.schedule=zb-v", "pipeline.stages=2"}, []string{"data.train", "pipeline.stages", "pipeline.schedule"}},
		{[]string{"model.heads=2", "model.hidden=64", "optimizer.min_lr=0"}, []string{"model.hidden", "model.heads", "data.train",
			"optimizer.min_lr"}},
		{[]string{"model.from=x", "model.layers=2"}, []string{"model.from", "data.train"}},
	} {
		cfg, err := Parse("test", []byte("[data]\ntrain = [\"a.txt\"]\n"), tc.sets, nil)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := ParseStored("stored", cfg.TOML())
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]*Config{"given": cfg, "stored": stored} {
			var got []string
			for _, e := range Entries(c) {
				if !e.IsDefault() {
					got = append(got, e.Key)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%v, %s: %v, want %v", tc.sets, name, got, tc.want)
			}
		}
	}
}
