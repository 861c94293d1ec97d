package rundir_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/run/rundir"
)

// TestConflicts: whatever decides the numbers must be as it was; the error names the key
// as today's configuration has it, with both values, all of them at once.
func TestConflicts(t *testing.T) {
	was := newConfig(t, "out").TOML()
	for _, tt := range []struct {
		name string
		sets []string
		want []string // none: there is no conflict
	}{
		{"the same", nil, nil},
		{"what doesn't matter", []string{"run.steps=9", "run.keep=1", "run.name=again", "pipeline.stages=2"}, nil},
		{"a seed", []string{"run.seed=8"}, []string{"--set run.seed=8: run.seed: ", "runs/a has a run with ", "the value is now 8",
			"choose another run.out", "model.from"}},
		{"two keys", []string{"run.seed=8", "optimizer.weight_decay=0.5"},
			[]string{"run.seed", "optimizer.weight_decay", "the value is now 0.5"}},
		{"a rate", []string{"optimizer.lr=0.5", "optimizer.warmup_steps=1", "optimizer.decay=linear"}, nil},
	} {
		err := rundir.Conflicts(newConfig(t, "out", tt.sets...), "runs/a/config.toml", was)
		if err != nil && strings.Contains(err.Error(), "default: ") {
			t.Errorf("%s: error %q blames a default that follows from another key", tt.name, err)
		}
		if (err != nil) != (len(tt.want) > 0) || err != nil && !errors.Is(err, rundir.ErrFolder) {
			t.Errorf("%s: error %v", tt.name, err)
		}
		for _, text := range tt.want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: error %q, want %q in it", tt.name, err, text)
			}
		}
	}
}

// TestAdopt: what follows from the run's length, or what nobody chose of the rate, stays what it was; the start says so.
func TestAdopt(t *testing.T) {
	for _, tt := range []struct {
		name       string
		first, now []string
		want       config.Optimizer
		kept       []string
	}{
		{"a longer run keeps its warm-up", []string{"run.steps=50"}, []string{"run.steps=9000"},
			config.Optimizer{LR: 0.001, MinLR: 0.0001, WarmupSteps: 5, Decay: "cosine"}, nil},
		{"a shorter one, too", []string{"run.steps=50"}, []string{"run.steps=2"},
			config.Optimizer{LR: 0.001, MinLR: 0.0001, WarmupSteps: 5, Decay: "cosine"},
			[]string{"optimizer.warmup_steps: the run keeps 5, not the default 0; to change it, use --set optimizer.warmup_steps=0"}},
		{"a missing --set", []string{"optimizer.lr=0.5"}, nil, config.Optimizer{LR: 0.5, MinLR: 0.05, Decay: "cosine"},
			[]string{"optimizer.lr: the run keeps 0.5, not the default 0.001; to change it, use --set optimizer.lr=0.001"}},
		{"back to the default", []string{"optimizer.lr=0.5"}, []string{"optimizer.lr=0.001"},
			config.Optimizer{LR: 0.001, MinLR: 0.0001, Decay: "cosine"}, nil},
		{"a floor that follows", nil, []string{"optimizer.lr=0.5"}, config.Optimizer{LR: 0.5, MinLR: 0.05, Decay: "cosine"}, nil},
		{"a floor of its own", []string{"optimizer.min_lr=0"}, []string{"optimizer.lr=0.5"}, config.Optimizer{LR: 0.5, Decay: "cosine"}, nil},
		{"a floor above the new peak", []string{"optimizer.lr=1.0", "optimizer.min_lr=0.5"}, []string{"optimizer.lr=0.25"},
			config.Optimizer{LR: 0.25, MinLR: 0.25, Decay: "cosine"}, nil},
		{"another decay", []string{"optimizer.decay=wsd", "optimizer.decay_steps=2"}, []string{"optimizer.decay=linear"},
			config.Optimizer{LR: 0.001, MinLR: 0.0001, Decay: "linear"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			own, _, kept, err := rundir.Adopt(newConfig(t, "out", tt.now...), "config.toml", newConfig(t, "out", tt.first...).TOML())
			must(t, err)
			o := own.Optimizer
			got := config.Optimizer{LR: o.LR, MinLR: o.MinLR, WarmupSteps: o.WarmupSteps, Decay: o.Decay, DecaySteps: o.DecaySteps}
			if !reflect.DeepEqual(got, tt.want) || !slices.Equal(kept, tt.kept) {
				t.Errorf("it has %+v and says %q, want %+v and %q", got, kept, tt.want, tt.kept)
			}
		})
	}
}

// TestConflictsUnknown: a stored configuration that can't be read is the folder's fault.
func TestConflictsUnknown(t *testing.T) {
	for _, text := range []string{"title = 'my site'", "run = 7", "[[["} {
		if err := rundir.Conflicts(newConfig(t, "out"), "runs/a/config.toml", []byte(text)); !errors.Is(err, rundir.ErrFolder) ||
			!strings.Contains(err.Error(), "runs/a/config.toml") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}
