// Package requests keeps the open requests of a run.
package requests

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Limit is the largest number of open changes of a run.
const Limit = 1000

// Open are the requests that are not done. They belong to the run, not to an
// attempt at it: an attempt may end with the process that heard them, so the next one is
// given them before its first order. The caller guards them.
type Open struct {
	last  uint64 // number of the latest
	given uint64 // the latest that the attempt in progress knows of
	open  []openRequest
}

// openRequest is one that is not done.
type openRequest struct {
	actors.Request
	noted bool // the journal has it, for its step
}

// Add takes a change. One that is open already is not counted again: its number is 0.
func (q *Open) Add(c event.Change) (actors.Request, error) {
	r := actors.Request{Change: c}
	switch {
	case c.Kind == event.ChangeRate && c.Step == 0: // of those that no attempt has heard of the last one counts
		q.open = slices.DeleteFunc(q.open, func(o openRequest) bool { return o.ID > q.given && o.Kind == event.ChangeRate && o.Step == 0 })
	case c.Kind == event.ChangeResume:
		q.open = slices.DeleteFunc(q.open, func(o openRequest) bool { return o.Kind == event.ChangePause })
	case c.Kind == event.ChangeCheckpoint && c.Step == 0: // one that is being written is of an older step: another is to follow
		q.open = slices.DeleteFunc(q.open, func(o openRequest) bool { return o.Change == c })
	}
	if c.Kind != event.ChangeRate && slices.ContainsFunc(q.open, func(o openRequest) bool { return o.Change == c }) {
		return r, nil
	}
	// What names no step is never refused: there is one of each kind at most.
	if (c.Step > 0 || c.Kind == event.ChangeRate) && len(q.open) >= Limit {
		return r, fmt.Errorf("%w: there are %d open changes, the limit; wait until some are done", plan.ErrOptions, len(q.open))
	}
	q.last++
	r.ID = q.last
	q.open = append(q.open, openRequest{Request: r})
	return r, nil
}

// Begin are the requests for an attempt that resumes at a step. Those that the journal has
// for a later step come from there.
func (q *Open) Begin(start int64) (all []actors.Request) { return q.Renew(start, start) }

// Renew is Begin for an attempt that continues after a step without a checkpoint of it; the last checkpoint is of step saved.
func (q *Open) Renew(start, saved int64) (all []actors.Request) {
	q.open = slices.DeleteFunc(q.open, func(o openRequest) bool {
		return o.Kind == event.ChangeCheckpoint && o.Step > 0 && o.Step <= saved // it exists
	})
	for i := range q.open {
		o := &q.open[i]
		if o.noted && o.Step > start {
			continue
		}
		if o.Kind != event.ChangeRate && o.Kind != event.ChangeResume && o.Step <= start {
			o.Step, o.noted = 0, false // its step has ended
		}
		all = append(all, o.Request)
	}
	q.given = q.last
	return all
}

// Given says that the attempt in progress knows of all of them.
func (q *Open) Given() { q.given = q.last }

// Clear forgets them: the run has ended.
func (q *Open) Clear() { q.open = nil }

// Late are those that came since Begin.
func (q *Open) Late() (all []actors.Request) {
	for _, o := range q.open {
		if o.ID > q.given {
			all = append(all, o.Request)
		}
	}
	q.given = q.last
	return all
}

// Event takes an attempt's word about one.
func (q *Open) Event(e actors.RequestEvent) {
	i := slices.IndexFunc(q.open, func(o openRequest) bool { return o.ID == e.ID })
	switch {
	case i < 0:
	case e.Done:
		q.open = slices.Delete(q.open, i, i+1)
	default:
		q.open[i].noted, q.open[i].Step = true, e.Step
	}
}

// Stops reports whether the run must stop at a step or before it.
func (q *Open) Stops(step int64) bool {
	return slices.ContainsFunc(q.open, func(o openRequest) bool { return o.Kind == event.ChangeStop && o.Step <= step })
}

// List returns the open changes.
func (q *Open) List() (all []event.Change) {
	for _, o := range q.open {
		all = append(all, o.Change)
	}
	return all
}
