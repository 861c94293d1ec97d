package main

import (
	"math"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe"
)

// recorder is an actor of the service. A run sends it events, which it converts for HTTP clients. It also sends a
// command: it stops a run that skips several steps in a row because its numbers are not finite.
type recorder struct {
	events  *eventLog
	ended   func()
	skipped int // consecutive skipped steps
}

// limitSkipped is the number of consecutive skipped steps that stops a run.
const limitSkipped = 5

func (a *recorder) Receive(ctx actor.Context) {
	switch e := ctx.Message().(type) {
	case troupe.StepEvent:
		a.step(ctx, e)
	case troupe.PauseEvent:
		a.events.add(e, func(s *state) { s.State = map[bool]string{true: "paused", false: "running"}[e.Paused] })
	case troupe.CheckpointEvent:
		a.events.add(e, func(s *state) {
			if !e.Weights { // the run does not resume from it
				s.Checkpoint = e.Dir
			}
		})
	case troupe.EndEvent:
		a.end(ctx, e)
	case troupe.ChangeEvent, troupe.StallEvent, troupe.WarningEvent:
		a.events.add(e, nil)
	}
}

func (a *recorder) step(ctx actor.Context, e troupe.StepEvent) {
	e.Trace, e.Clocks = nil, nil // the page has them
	a.events.add(e, func(s *state) {
		s.Step = e.Step
		if e.Loss != nil {
			s.Loss = finite(e.Loss)
		}
		if e.ValLoss != nil {
			s.ValLoss = finite(e.ValLoss)
		}
	})
	if a.skipped++; !e.Skipped {
		a.skipped = 0
	}
	if a.skipped == limitSkipped {
		a.events.add(troupe.WarningEvent{Text: "stopping the run: its loss or gradients are not finite; try a lower learning rate"}, nil)
		ctx.Request(ctx.Sender(), troupe.Change{Kind: troupe.ChangeStop})
	}
}

func (a *recorder) end(ctx actor.Context, e troupe.EndEvent) {
	how := "finished"
	if e.Result.Stopped {
		how = "stopped"
	}
	if e.Err != nil {
		how = "failed"
	}
	a.ended() // before the event, so that its readers can start another run
	a.events.add(e, func(s *state) {
		if s.State, s.Checkpoint = how, e.Result.Dir; e.Err != nil {
			s.Error = e.Err.Error()
		} else {
			s.Step = e.Result.Step
		}
	})
	ctx.Stop(ctx.Self())
}

// finite returns a value for JSON: nil, which is null, if it is not finite.
func finite(v *float64) *float64 {
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return nil
	}
	return v
}
