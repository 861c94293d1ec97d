package actors

import (
	"math"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry"
)

// How a step's update was made, where a run post-validates ("Zero Bubble Pipeline
// Parallelism", arXiv 2401.10241, section 4): stages presume the update, begin the next
// step, and learn afterwards whether it was the right one.
const (
	UpdateKept       = "kept"        // presumed, and right
	UpdateRolledBack = "rolled_back" // presumed, and made again
	UpdateWaited     = "waited"      // not presumed
)

// Updates counts the steps of a run by how their update was made; zeros where the run
// does not post-validate.
type Updates struct{ Kept, RolledBack, Waited int64 }

// count adds a step and names its kind.
func (u *Updates) count(ahead, held bool) string {
	switch {
	case !ahead:
		u.Waited++
		return UpdateWaited
	case held:
		u.Kept++
		return UpdateKept
	}
	u.RolledBack++
	return UpdateRolledBack
}

// experience remembers of the last steps whether their update would have been presumed
// rightly.
type experience struct {
	missed [experienced]bool
	steps  int
}

func (e *experience) add(held bool) {
	e.missed[e.steps%experienced] = !held
	e.steps++
}

// trusts reports whether presuming is worth it: a wrong update costs more time than
// waiting for the right one does, so not when more than half of the last were wrong.
func (e *experience) trusts() bool {
	misses := 0
	for _, m := range e.missed {
		if m {
			misses++
		}
	}
	return 2*misses <= experienced
}

// lookAhead presumes the update of the step that begins: no clipping, every figure
// finite, and as many targets as the step before had. If the next step is known to
// follow, its order goes out at once.
func (a *schedulerActor) lookAhead(ctx actor.Context) {
	step := a.state.Step + 1
	a.presumed = stages.Update{Count: int(a.state.Updates) + 1, LR: a.spec.Rate.At(step), GradScale: a.spec.Reduce.Final(a.targets)}
	// The record of this step will wait for its line beside those that do now.
	if !a.nothingBetween(step) || !a.experience.trusts() || a.recording+1 >= LimitRecords {
		return
	}
	presumed := a.presumed
	a.ahead = a.newOrder(Train, step+1)
	a.ahead.Presumed = &presumed
	a.issue(ctx, a.ahead)
}

// nothingBetween reports whether the step after this one is to follow at once, as far
// as is known now.
func (a *schedulerActor) nothingBetween(step int64) bool {
	saves := a.spec.WriteCheckpoint != nil && (a.saveNow || a.best || a.savesAt(step))
	return step < a.spec.Steps && !a.pause && !a.stop && !saves && !a.evaluatesAt(step)
}

// decide adds up the step and sends the update. The squared norms are added in
// the model's order of parameters, here and nowhere else, so the sum is the same
// under every layout.
func (a *schedulerActor) decide(ctx actor.Context) {
	wall := time.Since(a.began)
	var sum float64
	for _, n := range a.norms {
		sum += n
	}
	loss := a.losses.Loss()
	a.targets = a.losses.Targets()
	final := a.spec.Reduce.Final(a.targets)
	norm := math.Sqrt(sum) * final
	a.state.Step++
	step := a.state.Step
	rate := a.spec.Rate.At(step)
	m := &Apply{Header: a.header(), Skip: !finite(norm) || !finite(loss)}
	if !m.Skip {
		a.state.Updates++
		scale := final
		if a.spec.ClipNorm > 0 && norm > a.spec.ClipNorm {
			scale *= a.spec.ClipNorm / norm
		}
		m.Update = stages.Update{Count: int(a.state.Updates), LR: rate, GradScale: scale}
	}
	m.Kept = !m.Skip && m.Update == a.presumed
	next := a.ahead
	if next != nil && (!m.Kept || !a.nothingBetween(step)) {
		m.Abandon, next = next.Order, nil
	}
	for _, pid := range a.wire.Stages {
		ctx.Send(pid, m)
	}
	a.applied.reset()
	tokens := int64(a.spec.Sequences) * int64(a.spec.Context)
	a.state.Tokens += tokens
	ms := float64(wall) / float64(time.Millisecond)
	perSecond := float64(tokens) / wall.Seconds()
	// A rank that ended the step before early has worked for this one before it began:
	// where its lead is lost again, there is more work than time.
	bubble := max(0, 100*(1-float64(a.busy)/(float64(a.spec.ranks())*float64(wall))))
	a.last = &StepEvent{Trace: a.trace, Record: telemetry.Record{Step: int(step), Loss: &loss, GradNorm: &norm, LR: &rate, Tokens: a.state.Tokens,
		TokensPerS: &perSecond, StepMS: &ms, BubblePct: &bubble, PeakMemBytes: telemetry.PeakRSS(), Skipped: m.Skip}}
	if mtp := a.losses.Metric(mtpLoss); mtp != 0 {
		a.last.MTPLoss = &mtp
	}
	if a.spec.PostValidate {
		a.experience.add(m.Kept)
		a.last.Update = a.updates.count(a.ahead != nil, m.Kept)
	}
	a.ahead = nil
	if next != nil {
		a.writeRecord(ctx)
		a.begin(ctx, next)
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
