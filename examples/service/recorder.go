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
		name := map[bool]string{true: "paused", false: "running"}[e.Paused]
		a.events.add(name, map[string]any{"step": e.Step}, func(s *state) { s.State = name })
	case troupe.CheckpointEvent:
		a.events.add("checkpoint", map[string]any{"step": e.Step, "dir": e.Dir, "best": e.Best}, func(s *state) { s.Checkpoint = e.Dir })
	case troupe.ChangeEvent:
		data := map[string]any{"change": e.Change}
		if e.Err != nil {
			data["error"] = e.Err.Error()
		}
		a.events.add("change", data, nil)
	case troupe.StallEvent:
		a.events.add("stall", map[string]any{"quiet_s": e.Quiet.Seconds(), "waits": e.Status.Chain()}, nil)
	case troupe.WarningEvent:
		a.events.add("warning", map[string]any{"text": e.Text}, nil)
	case troupe.EndEvent:
		a.end(ctx, e)
	}
}

func (a *recorder) step(ctx actor.Context, e troupe.StepEvent) {
	loss, valLoss := finite(e.Loss), finite(e.ValLoss)
	a.events.add("step", map[string]any{"step": e.Step, "loss": loss, "val_loss": valLoss, "lr": finite(e.LR),
		"tokens_per_s": finite(e.TokensPerS), "skipped": e.Skipped}, func(s *state) {
		s.Step = e.Step
		if e.Loss != nil {
			s.Loss = loss
		}
		if e.ValLoss != nil {
			s.ValLoss = valLoss
		}
	})
	if a.skipped++; !e.Skipped {
		a.skipped = 0
	}
	if a.skipped == limitSkipped {
		a.events.add("warning", map[string]any{"text": "stopping the run: its loss or gradients are not finite; try a lower learning rate"}, nil)
		ctx.Request(ctx.Sender(), troupe.Change{Kind: troupe.ChangeStop})
	}
}

func (a *recorder) end(ctx actor.Context, e troupe.EndEvent) {
	how := "finished"
	if e.Result.Stopped {
		how = "stopped"
	}
	data := map[string]any{"step": e.Result.Step, "checkpoint": e.Result.Dir}
	if e.Err != nil {
		how, data["error"] = "failed", e.Err.Error()
	}
	a.ended() // before the event, so that its readers can start another run
	a.events.add(how, data, func(s *state) {
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
