package attempt

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/points"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// rateOf returns the learning rate over time.
func rateOf(cfg *config.Config) stages.Rate {
	r := stages.Rate{LR: cfg.Optimizer.LR, MinLR: cfg.Optimizer.MinLR, Warmup: int64(cfg.Optimizer.WarmupSteps), Steps: int64(cfg.Run.Steps),
		Decay: cfg.Optimizer.Decay, DecaySteps: int64(cfg.Optimizer.DecaySteps), Points: cfg.Optimizer.Points}
	if r.DecaySteps == 0 {
		r.DecaySteps = decaySteps(r)
	}
	return r
}

// decaySteps returns the default of optimizer.decay_steps.
func decaySteps(r stages.Rate) int64 {
	switch {
	case r.Decay == stages.CosineRestarts:
		return max(1, (r.Steps-r.Warmup+1)/2)
	case r.Decay == stages.InverseSqrt && r.Warmup > 0:
		return r.Warmup
	case r.Decay == stages.InverseSqrt:
		return 10_000
	}
	return (r.Steps + 4) / 5
}

// reschedule is a change of the learning rate over time, because the configuration of a run has changed since its last
// start. The journal gets it: if the run resumes from an older checkpoint, the steps up to the change have their old rate.
type reschedule struct {
	base   *event.Change // the schedule from the first step; nil: the journal has it
	change event.Change
	keys   []string // that differ
}

// rescheduled compares the rate of a run after a step with that of its configuration. was is its configuration at the
// last start; nil: the rate is the same.
func rescheduled(was, cfg *config.Config, changes []event.Change, after int64) *reschedule {
	var base *event.Change
	if !slices.ContainsFunc(changes, func(c event.Change) bool { return c.Kind == event.ChangeRate && c.Steps > 0 }) {
		base = scheduleChange(rateOf(was), 0)
	}
	now := RateAfter(was, changes, after) // in effect
	next := over(now, rateOf(was), rateOf(cfg))
	from := differs(now, next, after, int64(cfg.Run.Steps))
	if from == 0 && (after >= int64(cfg.Run.Steps) || differs(now, next, 0, after) == 0) {
		return nil
	}
	r := &reschedule{base: base, change: *scheduleChange(next, after)}
	r.change.Now = true // a later start that resumes from an older checkpoint may replace it
	var said []string
	for _, c := range config.Moved(was, cfg) {
		if config.IsRateKey(c.Key) {
			r.keys, said = append(r.keys, c.Key), append(said, fmt.Sprintf("%s %s → %s", c.Key, c.A, c.B))
		}
	}
	text := fmt.Sprintf("the rate goes from %.3g to %.3g", now.At(from), next.At(from))
	switch {
	case from == 0:
		text = "the rate of the steps to come stays the same"
	case from > after+1:
		text = fmt.Sprintf("the rate of step %d is %.3g and not %.3g", from, next.At(from), now.At(from))
	}
	r.change.Note = fmt.Sprintf("%s from step %d: %s", strings.Join(said, ", "), after+1, text)
	return r
}

// over returns a schedule in effect with what differs between two configurations.
func over(now, was, is stages.Rate) stages.Rate {
	if is.LR != was.LR {
		now.LR = is.LR
	}
	if is.MinLR != was.MinLR {
		now.MinLR = is.MinLR
	}
	if now.MinLR > now.LR { // the other one was changed while the run trained
		now.MinLR = now.LR
	}
	if is.Warmup != was.Warmup {
		now.Warmup = is.Warmup
	}
	if is.Steps != was.Steps {
		now.Steps = is.Steps
	}
	if is.Decay != was.Decay {
		now.Decay = is.Decay
	}
	if is.DecaySteps != was.DecaySteps {
		now.DecaySteps = is.DecaySteps
	}
	if !slices.Equal(is.Points, was.Points) {
		now.Points = is.Points
	}
	return now
}

// differs returns the first step after a step at which two schedules have another rate; 0: none has, up to the last step.
func differs(a, b stages.Rate, after, last int64) int64 {
	// Two schedules can diverge only at a step where one of them changes its form. Cycles of two lengths that meet at one step
	// part at the next.
	turns := []int64{after + 1, after + 2, a.Warmup + 1, b.Warmup + 1, a.Steps - a.DecaySteps + 1, b.Steps - b.DecaySteps + 1, a.Steps + 1,
		a.Warmup + 2, b.Warmup + 2}
	for _, p := range slices.Concat(a.Points, b.Points) {
		turns = append(turns, int64(p[0]), int64(p[0])+1)
	}
	slices.Sort(turns)
	for _, step := range turns {
		if x, y := a.At(step), b.At(step); step > after && step <= last && math.Abs(x-y) > 1e-9*math.Max(x, y) {
			return step
		}
	}
	return 0
}

// scheduleChange returns the change to a schedule after a step.
func scheduleChange(r stages.Rate, after int64) *event.Change {
	return &event.Change{Kind: event.ChangeRate, Step: after, LR: r.LR, MinLR: r.MinLR, Steps: r.Steps, WarmupSteps: r.Warmup,
		Decay: r.Decay, DecaySteps: r.DecaySteps, Points: points.Format(r.Points)}
}

// journalRate journals a changed learning rate.
func (a *Attempt) journalRate() error {
	if a.rate == nil {
		return nil
	}
	return a.output.WriteSchedule(a.rate.base, a.rate.change)
}

// tellRate reports a changed learning rate.
func (a *Attempt) tellRate() {
	if a.rate != nil {
		a.env.Event(event.ChangeEvent{Change: a.rate.change})
	}
}

// moved describes the keys that differ from the configuration of the run's last start, except those of the rate.
func (a *Attempt) moved() string {
	if a.was == nil {
		return ""
	}
	var said []string
	for _, c := range config.Moved(a.was, a.cfg) {
		if a.rate == nil || !slices.Contains(a.rate.keys, c.Key) {
			said = append(said, fmt.Sprintf("%s %s → %s", c.Key, c.A, c.B))
		}
	}
	return strings.Join(said, ", ")
}
