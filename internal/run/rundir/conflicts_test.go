package rundir_test

import (
	"errors"
	"strings"
	"testing"

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
			"choose another run.out"}},
		{"two keys", []string{"run.seed=8", "optimizer.lr=0.5"}, []string{"run.seed", "optimizer.lr", "the value is now 0.5"}},
		{"a rate", []string{"optimizer.lr=0.5"}, []string{"optimizer.lr", "--ui", "engine cluster rate", "model.from"}},
		{"another warm-up", []string{"optimizer.warmup_steps=1"}, []string{"optimizer.warmup_steps"}},
	} {
		_, err := rundir.Conflicts(newConfig(t, "out", tt.sets...), "runs/a/config.toml", was)
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

// TestConflictsKeepTheWarmUp: one that nobody set follows the run's length, and stays what
// it was when the length changes.
func TestConflictsKeepTheWarmUp(t *testing.T) {
	first := newConfig(t, "out", "run.steps=50")
	longer := newConfig(t, "out", "run.steps=9000")
	if longer.Optimizer.WarmupSteps == first.Optimizer.WarmupSteps {
		t.Fatalf("a warm-up of %d steps whatever the length", first.Optimizer.WarmupSteps)
	}
	longer, err := rundir.Conflicts(longer, "config.toml", first.TOML())
	must(t, err)
	if longer.Optimizer.WarmupSteps != first.Optimizer.WarmupSteps {
		t.Errorf("a warm-up of %d steps, before it was of %d", longer.Optimizer.WarmupSteps, first.Optimizer.WarmupSteps)
	}
	shorter, err := rundir.Conflicts(newConfig(t, "out", "run.steps=2"), "config.toml", first.TOML())
	must(t, err)
	if shorter.Optimizer.WarmupSteps != first.Optimizer.WarmupSteps {
		t.Errorf("a warm-up of %d steps in a shorter run, before it was of %d", shorter.Optimizer.WarmupSteps, first.Optimizer.WarmupSteps)
	}
}

// TestConflictsUnknown: a stored configuration that can't be read is the folder's fault.
func TestConflictsUnknown(t *testing.T) {
	for _, text := range []string{"title = 'my site'", "run = 7", "[[["} {
		if _, err := rundir.Conflicts(newConfig(t, "out"), "runs/a/config.toml", []byte(text)); !errors.Is(err, rundir.ErrFolder) ||
			!strings.Contains(err.Error(), "runs/a/config.toml") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}
