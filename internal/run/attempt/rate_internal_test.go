package attempt

import (
	"testing"

	"github.com/troupe-ml/troupe/stages"
)

// TestDiffers: the first step at which two schedules part, also where cycles of two lengths meet.
func TestDiffers(t *testing.T) {
	rate := func(decay string, steps, decaySteps int64) stages.Rate {
		return stages.Rate{LR: 1, MinLR: 0.1, Steps: steps, Decay: decay, DecaySteps: decaySteps}
	}
	for _, tt := range []struct {
		name        string
		a, b        stages.Rate
		after, want int64
	}{
		{"restarts, more steps", rate(stages.CosineRestarts, 8, 4), rate(stages.CosineRestarts, 16, 4), 8, 0},
		{"restarts, longer cycles, both at the peak", rate(stages.CosineRestarts, 8, 4), rate(stages.CosineRestarts, 16, 8), 8, 10},
		{"inverse_sqrt, more steps", rate(stages.InverseSqrt, 8, 4), rate(stages.InverseSqrt, 16, 4), 8, 0},
		{"cosine, more steps", rate(stages.Cosine, 8, 2), rate(stages.Cosine, 16, 2), 8, 9},
		{"another decay", rate(stages.Constant, 16, 4), rate(stages.CosineRestarts, 16, 4), 8, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := differs(tt.a, tt.b, tt.after, 16); got != tt.want {
				t.Errorf("the schedules part at step %d, want %d", got, tt.want)
			}
		})
	}
}

// TestDecaySteps: what optimizer.decay_steps is where no configuration has it.
func TestDecaySteps(t *testing.T) {
	for _, tt := range []struct {
		decay         string
		warmup, steps int64
		want          int64
	}{
		{stages.WSD, 10, 1000, 200},
		{stages.CosineRestarts, 10, 1000, 495},
		{stages.CosineRestarts, 5, 5, 1},
		{stages.InverseSqrt, 10, 1000, 10},
		{stages.InverseSqrt, 0, 1000, 10_000},
	} {
		if got := decaySteps(stages.Rate{Decay: tt.decay, Warmup: tt.warmup, Steps: tt.steps}); got != tt.want {
			t.Errorf("%s with %d of %d steps of warm-up has %d, want %d", tt.decay, tt.warmup, tt.steps, got, tt.want)
		}
	}
}
