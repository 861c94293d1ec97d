package attempt

import (
	"fmt"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// rateOf returns the learning rate over time.
func rateOf(cfg *config.Config) stages.Rate {
	r := stages.Rate{LR: cfg.Optimizer.LR, MinLR: cfg.Optimizer.MinLR, Warmup: int64(cfg.Optimizer.WarmupSteps), Steps: int64(cfg.Run.Steps),
		Decay: cfg.Optimizer.Decay, DecaySteps: int64(cfg.Optimizer.DecaySteps)}
	if r.DecaySteps == 0 {
		r.DecaySteps = (r.Steps + 4) / 5
	}
	return r
}

// rateChange describes how the learning rate after a step differs from that of the stored configuration; "": it
// does not.
func rateChange(stored, cfg *config.Config, changes []event.Change, after int64) string {
	was, is := rateOf(stored), rateOf(cfg)
	for _, c := range changes {
		if c.Kind == event.ChangeRate && c.Step <= after {
			was.LR, was.MinLR = c.LR, c.MinLR
			is.LR, is.MinLR = c.LR, c.MinLR
		}
	}
	// The two can diverge only at a step where one of them changes its form.
	turns := []int64{after + 1, was.Warmup + 1, is.Warmup + 1, was.Steps - was.DecaySteps + 1, is.Steps - is.DecaySteps + 1, was.Steps + 1}
	slices.Sort(turns)
	for _, step := range turns {
		if a, b := was.At(step), is.At(step); step > after && step <= is.Steps && math.Abs(a-b) > 1e-9*math.Max(a, b) {
			return fmt.Sprintf("run.steps changed from %d to %d, which moves the learning rate's decay (%s): at step %d the rate is %.4g; with the stored value it was %.4g",
				stored.Run.Steps, cfg.Run.Steps, cfg.Optimizer.Decay, step, b, a)
		}
	}
	return ""
}
