package actors

import (
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// regroup ends an attempt in order, with a checkpoint, so that the next attempt can use other processes.
type regroup struct {
	after int64 // the attempt ends at the first checkpoint from this step on; 0: at the end of the step in progress, with a checkpoint
	event.RegroupEvent
}

// Regroup ends the attempt with a checkpoint, so that the next one can use other processes. With after above 0 the
// attempt ends at the first checkpoint that is due from that step on, and continues if that can't be written. With 0 it
// ends after the step in progress. The outcome's Regroup has the event, with the step.
func (r *Run) Regroup(after int64, e event.RegroupEvent) {
	r.system.Root.Send(r.supervisor, &regroup{after, e})
}

// regroups records a request to regroup, with the reasons of an earlier one.
func (a *schedulerActor) regroups(m *regroup) {
	if was := a.regroup; was != nil {
		m.after = min(m.after, was.after)
		m.Leaving = union(was.Leaving, m.Leaving)
		m.Free = union(was.Free, m.Free)
		m.Lost = union(was.Lost, m.Lost)
	}
	a.regroup = m
}

func union[E comparable](a, b []E) []E {
	all := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// leaves reports whether the attempt ends after the current step, which a checkpoint must then contain.
func (a *schedulerActor) leaves() bool {
	return a.stop || a.regroup != nil && a.regroup.after == 0
}

// regroupAt decides at a due checkpoint whether the attempt ends there.
func (a *schedulerActor) regroupAt(saveDue bool) {
	if g := a.regroup; g != nil && g.after > 0 && saveDue && a.state.Step >= g.after {
		g.after = 0
		a.regroupWaits = true // for this checkpoint
	}
}

// keepsGroup delays a request to regroup that can wait, because the checkpoint for it could not be written.
func (a *schedulerActor) keepsGroup() {
	if a.regroupWaits {
		a.regroup.after, a.regroupWaits = a.state.Step+1, false
	}
}

// finish tells the supervisor that nothing is left to do.
func (a *schedulerActor) finish(ctx actor.Context, diverged error) {
	step := a.state.Step
	a.ended = true
	a.cell.store(event.Snapshot{Step: step, Doing: event.Finished})
	early := step < a.spec.Steps && a.impatient()
	f := &finished{Header: a.header(), stopped: step < a.spec.Steps && !early, early: early}
	switch {
	case diverged != nil && !a.stop:
		f.stopped, f.err = false, diverged
	case f.stopped && !a.stop: // only a regroup ends the attempt here
		f.stopped, f.regroup = false, &a.regroup.RegroupEvent
		f.regroup.Step = step
	}
	ctx.Send(ctx.Parent(), f)
}
