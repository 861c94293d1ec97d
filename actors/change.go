package actors

import (
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/internal/base/points"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// changes holds the changes of a scheduler actor.
type changes struct {
	due     []Request      // changes for a later step
	rates   []event.Change // rate changes in effect, in the order of their steps
	pauses  bool           // the journal has a pause without a later resume
	writing int            // number of changes not journaled yet
	resumes int            // resumes among them
	held    []Request      // pauses requested after those; they take effect after them
	hold    int64          // the first step after which one of those takes effect
}

// journal asks the metrics actor to journal a change; journalled confirms it.
type (
	journal struct {
		Header
		request Request
		asked   event.Change // as it was requested
	}
	journalled struct {
		journal
		full error // why the journal does not have the change; nil: it has
	}
)

// newChanges starts with the journaled changes: all rates, and everything else from the step at
// which the run resumes.
func newChanges(journalled []event.Change, step int64) (c changes) {
	for _, ch := range journalled {
		c.journalled(ch)
		if ch.Kind == event.ChangeRate || ch.Kind == event.ChangeResume || ch.Step > step {
			c.take(Request{Change: ch})
		}
	}
	return c
}

// journalled records a change that is in the journal.
func (c *changes) journalled(ch event.Change) {
	switch ch.Kind {
	case event.ChangePause:
		c.pauses = true
	case event.ChangeResume:
		c.pauses = false
	}
}

// take applies a change that is in the journal or needs no journal. It returns the rate changes
// that it cancels.
func (c *changes) take(r Request) (cancelled []event.Change) {
	switch r.Kind {
	case event.ChangeRate: // the last one for a step counts
		// Changes that were to take effect at once belonged to steps that were lost since.
		c.rates = slices.DeleteFunc(c.rates, func(o event.Change) bool {
			pending := o.Now && o.Step > r.Step
			if pending {
				cancelled = append(cancelled, o)
			}
			return pending
		})
		i := len(c.rates)
		for i > 0 && c.rates[i-1].Step > r.Step {
			i--
		}
		c.rates = slices.Insert(c.rates, i, r.Change)
	case event.ChangeResume:
		c.due = slices.DeleteFunc(c.due, func(o Request) bool { return o.Kind == event.ChangePause })
	default:
		c.due = append(c.due, r)
	}
	return cancelled
}

// between reports whether a change is known to take effect after a step has ended.
func (c *changes) between(step int64) bool {
	return c.writing > 0 || slices.ContainsFunc(c.due, func(r Request) bool { return r.Step <= step })
}

// rate returns the learning rate of a step.
func (a *schedulerActor) rate(step int64) float64 {
	r := a.spec.Rate
	for _, ch := range a.changes.rates {
		if ch.Step < step {
			r = ChangedRate(r, ch)
		}
	}
	return r.At(step)
}

// ChangedRate returns a schedule of the learning rate with a change of it.
func ChangedRate(r stages.Rate, ch event.Change) stages.Rate {
	r.LR, r.MinLR = ch.LR, ch.MinLR
	if ch.Steps > 0 {
		r.Steps, r.Warmup, r.Decay, r.DecaySteps = ch.Steps, ch.WarmupSteps, ch.Decay, ch.DecaySteps
		r.Points, _ = points.Parse(ch.Points) // Check has read them
	}
	return r
}

// request handles a requested change. A change that must be journaled takes effect after it is;
// until then no later step starts.
func (a *schedulerActor) request(ctx actor.Context, r Request) {
	err := r.Check()
	switch {
	case err != nil || r.Step == 0 || r.Kind == event.ChangeResume:
	case r.Step > a.spec.Steps:
		err = fmt.Errorf("%w: the run ends with step %d, before step %d", event.ErrStep, a.spec.Steps, r.Step)
	case r.Kind == event.ChangeStop:
		err = a.stopsAt(r.Step)
	}
	asked := r.Change
	if err != nil {
		a.refuse(ctx, r.ID, asked, err)
		return
	}
	now := a.state.Step
	if a.phase == event.Train {
		now++
	}
	// A change without a step does not affect results and need not be repeated; a resume only
	// cancels pauses.
	needs := r.Step > 0 || r.Kind == event.ChangeRate
	if r.Kind == event.ChangeResume {
		needs = a.changes.pauses || a.changes.writing > 0 // one of them may be a pause, which it must not overtake
	}
	r.Now = r.Kind == event.ChangeRate && r.Step == 0
	switch {
	case r.Kind == event.ChangePause && r.Step == 0 && a.changes.resumes > 0:
		a.changes.held = append(a.changes.held, r)
		return
	case r.Kind == event.ChangeResume:
		a.changes.held = nil // the resume cancels them
	}
	if r.Step = max(r.Step, now); a.spec.WriteChange == nil || !needs {
		a.changed(ctx, r, false)
		return
	}
	if a.changes.writing++; a.changes.writing == 1 || r.Step < a.changes.hold {
		a.changes.hold = r.Step
	}
	if r.Kind == event.ChangeResume {
		a.changes.resumes++
	}
	ctx.Request(a.peers.Metrics, &journal{a.header(), r, asked})
}

// refuse reports a change that the run refuses.
func (a *schedulerActor) refuse(ctx actor.Context, id uint64, c event.Change, err error) {
	ctx.Send(a.peers.Metrics, &publish{event.ChangeEvent{Change: c, Err: err}})
	a.tell(ctx, id, c.Step, true)
}

// inJournal applies a change that is in the journal, and refuses one for which it is full. A resume then takes effect without the
// journal: otherwise the run would stay paused.
func (a *schedulerActor) inJournal(ctx actor.Context, m *journalled) {
	a.changes.writing--
	resumes := m.request.Kind == event.ChangeResume
	switch {
	case m.full == nil:
		a.changes.journalled(m.request.Change)
		a.changed(ctx, m.request, true)
	case resumes:
		text := fmt.Sprintf("the run resumes, but if it restarts from an older checkpoint, it may pause again: %v", m.full)
		ctx.Send(a.peers.Metrics, &publish{event.WarningEvent{Text: text}})
		a.changed(ctx, m.request, false)
	default:
		a.refuse(ctx, m.request.ID, m.asked, m.full)
	}
	if resumes {
		a.resumed(ctx)
	}
}

// resumed applies the pauses that waited until a resume was journaled.
func (a *schedulerActor) resumed(ctx actor.Context) {
	if a.changes.resumes--; a.changes.resumes > 0 {
		return
	}
	held := a.changes.held
	a.changes.held = nil
	for _, r := range held {
		a.request(ctx, r)
	}
}

// stopsAt returns the error if the run can't stop at the end of a step. A request that names a step
// wants the checkpoint of that step and no other.
func (a *schedulerActor) stopsAt(step int64) error {
	if step <= a.state.Step {
		return fmt.Errorf("%w: step %d has already ended (%d steps have): give a later step, or none to stop as soon as possible", event.ErrStep,
			step, a.state.Step)
	}
	return nil
}

// changed applies a change, or records it for its step; journalled says that it is in the journal.
func (a *schedulerActor) changed(ctx actor.Context, r Request, journalled bool) {
	cancelled := a.changes.take(r)
	if r.Kind == event.ChangeResume {
		a.pause = false
		if a.paused {
			a.paused = false
			ctx.Send(a.peers.Metrics, &publish{event.PauseEvent{Step: a.state.Step, Paused: false}})
		}
	}
	ctx.Send(a.peers.Metrics, &publish{event.ChangeEvent{Change: r.Change, Cancelled: cancelled}})
	if done := r.Kind == event.ChangeResume || r.Kind == event.ChangeRate; done || journalled {
		a.tell(ctx, r.ID, r.Step, done)
	}
	a.takeDue()
}

// takeDue applies the changes that are due at the step that has ended or is in progress.
func (a *schedulerActor) takeDue() {
	reached := a.state.Step
	if a.phase == event.Train {
		reached++
	}
	a.changes.due = slices.DeleteFunc(a.changes.due, func(r Request) bool {
		if r.Step > reached {
			return false
		}
		switch r.Kind {
		case event.ChangePause:
			a.pause = true
		case event.ChangeCheckpoint:
			a.saveNow = true
			if r.ID > 0 {
				a.saves.wanted = append(a.saves.wanted, r.ID)
			}
		case event.ChangeStop:
			a.stop = true
		}
		return true
	})
}
