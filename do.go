package troupe

import (
	"context"
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/actors"
)

// ErrEnded: the run has ended, so that a request can no longer take effect.
var ErrEnded = actors.ErrEnded

// ErrCanceled: another request canceled this one.
var ErrCanceled = errors.New("the request was canceled")

// Do requests a change and waits for it, where Change returns at once. It returns the step that the change belongs to:
//
//   - ChangePause: the run has paused after this step.
//   - ChangeResume: the run has resumed after this step, or was not paused.
//   - ChangeCheckpoint: the checkpoint of this step is complete. If writing it fails, the run tries again, and Do waits.
//   - ChangeStop: the run has ended with this step. The error is that of Wait.
//   - ChangeRate: the change is in the journal, and has an effect after this step.
//
// The error is ErrOptions for an invalid change and ErrStep for a step at which the run can't stop; ErrCanceled if a resume
// canceled a pause; ErrEnded if the run ended first; or that of ctx. The end of ctx does not take the request back.
func (r *Run) Do(ctx context.Context, c Change) (step int64, err error) {
	events := r.Subscribe() // before the request, to see its effect
	defer events.Close()
	if err := r.Change(c); err != nil {
		return 0, err
	}
	if c.Kind == ChangeStop && c.Step == 0 {
		return r.untilEnd(ctx)
	}
	r.mu.Lock()
	paused, now := r.pausedAt, r.step
	r.mu.Unlock()
	switch {
	case c.Kind == ChangePause && paused >= 0 && c.Step <= paused:
		return paused, nil
	case c.Kind == ChangeResume && paused < 0 && !r.over():
		return now, nil
	}
	w := waitedFor{Change: c, now: now}
	for {
		select {
		case e, more := <-events.Events():
			if !more {
				return r.overtaken(ctx, c)
			}
			if step, done, err := w.event(e); done {
				if err == nil && c.Kind == ChangeStop {
					return r.untilEnd(ctx)
				}
				return step, err
			}
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// untilEnd waits for the end of the run.
func (r *Run) untilEnd(ctx context.Context) (int64, error) {
	select {
	case <-r.done:
		return int64(r.result.Step), r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// over reports whether the run has ended.
func (r *Run) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// overtaken returns the result of a request that the run's end overtook.
func (r *Run) overtaken(ctx context.Context, c Change) (int64, error) {
	step, err := r.untilEnd(ctx)
	switch {
	case c.Kind == ChangeStop || ctx.Err() != nil:
		return step, err
	case err != nil:
		return step, fmt.Errorf("%w at step %d, before the request took effect (%v): %w", ErrEnded, step, c, err)
	}
	return step, fmt.Errorf("%w at step %d, before the request took effect (%v)", ErrEnded, step, c)
}

// waitedFor is a change that Do waits for.
type waitedFor struct {
	Change
	now      int64 // the last step that has ended
	accepted bool  // its ChangeEvent was seen
	from     int64 // the step after which it takes effect
}

// event reports whether an event ends the wait.
func (w *waitedFor) event(e Event) (step int64, done bool, err error) {
	switch e := e.(type) {
	case StepEvent:
		w.now = int64(e.Step)
	case ChangeEvent:
		return w.change(e)
	case RestartEvent: // the next attempt gets the request again, maybe at an earlier step
		w.accepted = false
	case PauseEvent:
		return e.Step, w.Kind == ChangePause && e.Paused && e.Step >= w.Step || w.Kind == ChangeResume && !e.Paused, nil
	case CheckpointEvent:
		return e.Step, w.Kind == ChangeCheckpoint && w.accepted && e.Step >= w.from, nil
	}
	return 0, false, nil
}

func (w *waitedFor) change(e ChangeEvent) (step int64, done bool, err error) {
	switch {
	case e.Err != nil:
		return 0, e.Change == w.Change, e.Err
	case e.Kind == ChangeResume && w.Kind == ChangePause && w.accepted:
		return 0, true, fmt.Errorf("%w: another request resumed the run", ErrCanceled)
	case !w.accepts(e):
		return 0, false, nil
	}
	w.accepted, w.from = true, e.Step
	return e.Step, w.Kind == ChangeRate || w.Kind == ChangeStop, nil
}

// accepts reports whether an event is about this change, or about another that has the same effect.
func (w *waitedFor) accepts(e ChangeEvent) bool {
	switch {
	case w.accepted || e.Kind != w.Kind:
		return false
	case w.Kind == ChangeRate:
		return e.LR == w.LR && e.MinLR == w.MinLR && e.Now == (w.Step == 0) && e.Step >= w.Step
	case w.Kind == ChangeStop:
		return e.Step == w.Step
	}
	const ahead = 2 // steps that the scheduler may be ahead of the events
	return w.Step > 0 && e.Step >= w.Step || w.Step == 0 && e.Step <= w.now+ahead
}
