package troupe

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// requests are what was asked of a run and is not done. They belong to the run, not to an
// attempt at it: an attempt may end with the process that heard them, so the next one is
// given them before its first order. The run's mu guards them.
type requests struct {
	last  uint64 // number of the latest
	given uint64 // the latest that the attempt in progress knows of
	open  []openRequest
}

// openRequest is one that is not done.
type openRequest struct {
	actors.Request
	noted bool // the journal has it, for its step
}

// add takes a change. One that is open already is not counted again: its number is 0.
func (q *requests) add(c Change) (actors.Request, error) {
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
	if (c.Step > 0 || c.Kind == event.ChangeRate) && len(q.open) >= LimitRequests {
		return r, fmt.Errorf("%w: %d changes are not done yet, the limit", ErrOptions, len(q.open))
	}
	q.last++
	r.ID = q.last
	q.open = append(q.open, openRequest{Request: r})
	return r, nil
}

// begin are the requests for an attempt that resumes at a step. Those that the journal has
// for a later step come from there.
func (q *requests) begin(start int64) (all []actors.Request) {
	q.open = slices.DeleteFunc(q.open, func(o openRequest) bool {
		return o.Kind == event.ChangeCheckpoint && o.Step > 0 && o.Step <= start // it exists
	})
	for i := range q.open {
		o := &q.open[i]
		if o.noted && o.Step > start {
			continue
		}
		if (o.Kind == event.ChangePause || o.Kind == event.ChangeStop) && o.Step <= start {
			o.Step, o.noted = 0, false // its step has ended
		}
		all = append(all, o.Request)
	}
	q.given = q.last
	return all
}

// late are those that came since begin.
func (q *requests) late() (all []actors.Request) {
	for _, o := range q.open {
		if o.ID > q.given {
			all = append(all, o.Request)
		}
	}
	q.given = q.last
	return all
}

// event takes an attempt's word about one.
func (q *requests) event(e actors.RequestEvent) {
	i := slices.IndexFunc(q.open, func(o openRequest) bool { return o.ID == e.ID })
	switch {
	case i < 0:
	case e.Done:
		q.open = slices.Delete(q.open, i, i+1)
	default:
		q.open[i].noted, q.open[i].Step = true, e.Step
	}
}

// stops reports whether the run is to stop no later than with a step that has ended.
func (q *requests) stops(step int64) bool {
	return slices.ContainsFunc(q.open, func(o openRequest) bool { return o.Kind == event.ChangeStop && o.Step <= step })
}

func (q *requests) list() (all []Change) {
	for _, o := range q.open {
		all = append(all, o.Change)
	}
	return all
}

// Requests are the changes that were asked of the run and are not done yet: a pause is one until
// the run is told to resume, a checkpoint until it is written, a stop until the run has ended.
// They outlast the loss of a process: the run is given them again before it trains on.
func (r *Run) Requests() []Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests.list()
}

// ask takes a change, and passes it to the attempt in progress. Between two attempts the next
// one is given it.
func (r *Run) ask(c Change) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	req, err := r.requests.add(c)
	if err != nil {
		return err
	}
	if r.between {
		if c.Kind == event.ChangeStop && c.Step == 0 {
			r.cut = true
			r.interrupt()
		}
		return nil
	}
	r.requests.given = r.requests.last
	r.inner.Ask(req)
	return nil
}

// wish is ask for what can't be refused: one of each is open at a time.
func (r *Run) wish(kind ChangeKind) { _ = r.ask(Change{Kind: kind}) }

// Pause holds the run at the end of its step; Resume lets it continue.
func (r *Run) Pause() { r.wish(event.ChangePause) }

// Resume lets a paused run continue.
func (r *Run) Resume() { r.wish(event.ChangeResume) }

// Checkpoint asks for a checkpoint at the end of the step.
func (r *Run) Checkpoint() { r.wish(event.ChangeCheckpoint) }

// Stop ends the run at the end of its step, with a checkpoint. Where a process was lost, the
// run ends at its last checkpoint, if there is one.
func (r *Run) Stop() { r.wish(event.ChangeStop) }

// Kill ends the run at once, without a checkpoint.
func (r *Run) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killed = true
	if r.between {
		r.cut = true
		r.interrupt()
		return
	}
	r.inner.Kill()
}
