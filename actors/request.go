package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Request is a change that was asked of a run. Whoever began the run numbers requests from 1,
// and RequestEvents say by the number what has become of one; 0: nobody is told.
type Request struct {
	ID uint64
	event.Change
}

// RequestEvent says what has become of a request. It is for who began the run, beside the
// events that a person reads.
type RequestEvent struct {
	ID   uint64
	Step int64 // at the end of which the change takes effect
	// Done: nothing of it is left to do, or it was refused. Otherwise it is in the journal, and
	// each attempt that resumes before Step carries it out.
	Done bool
}

// OutputEvent: what the layers of one stage have given out of a microbatch of a validation,
// in a run that collects it (Spec.Collect).
type OutputEvent struct {
	Microbatch int
	Outputs    []stages.Output
}

// tell says what has become of a request.
func (a *schedulerActor) tell(ctx actor.Context, id uint64, step int64, done bool) {
	if id > 0 && a.spec.OnEvent != nil {
		ctx.Send(a.peers.Metrics, &publish{RequestEvent{ID: id, Step: step, Done: done}})
	}
}

// takeRequests takes what was asked of the run before this attempt, ahead of its first order.
func (a *schedulerActor) takeRequests(ctx actor.Context) {
	step := a.state.Step
	holds := false // no step begins before somebody asks for it
	for _, r := range a.spec.Requests {
		holds = holds || r.Step <= step && (r.Kind == event.ChangePause || r.Kind == event.ChangeStop)
	}
	for _, r := range a.spec.Requests {
		if r.Kind == event.ChangeCheckpoint && r.Step == 0 && step < a.spec.Steps && !holds {
			// The checkpoint that the attempt resumes from, if there is one, is older than the request.
			r.Step = step + 1
			a.changes.due = append(a.changes.due, r)
			continue
		}
		a.request(ctx, r)
	}
}

// saves are the requests for a checkpoint, by how far they have come.
type saves struct {
	wanted  []uint64           // the next checkpoint is theirs
	writing map[int64][]uint64 // the one in progress of a step
	written int64              // step of the newest that is written
}

// begin: a checkpoint of a step is being written.
func (s *saves) begin(step int64) {
	if s.writing == nil {
		s.writing = make(map[int64][]uint64)
	}
	s.writing[step] = append(s.writing[step], s.wanted...)
	s.wanted = nil
}

// fail: it could not be written, and the next one is theirs.
func (s *saves) fail(step int64) {
	s.wanted = append(s.wanted, s.writing[step]...)
	delete(s.writing, step)
}

// end: it is written. It returns the requests that are done by it.
func (s *saves) end(step int64) []uint64 {
	done := s.writing[step]
	delete(s.writing, step)
	s.written = max(s.written, step)
	return done
}
