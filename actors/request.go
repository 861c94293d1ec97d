package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Request is a requested change of a run. The caller that started the run numbers requests from 1,
// and RequestEvents report the result by this number; 0: no report.
type Request struct {
	ID uint64
	event.Change
}

// RequestEvent reports the state of a request. It is for the caller that started the run, in
// addition to the events for users.
type RequestEvent struct {
	ID   uint64
	Step int64 // step at whose end the change takes effect
	// Done means that the request is complete, or was refused. Otherwise it is in the journal, and
	// each attempt that resumes before Step will apply it.
	Done bool
}

// OutputEvent holds the outputs that the layers of one stage collected from a microbatch of a
// validation, in a run that collects them (Spec.Collect).
type OutputEvent struct {
	Microbatch int
	Outputs    []stages.Output
}

// tell reports the state of a request.
func (a *schedulerActor) tell(ctx actor.Context, id uint64, step int64, done bool) {
	if id > 0 && a.spec.OnEvent != nil {
		ctx.Send(a.peers.Metrics, &publish{RequestEvent{ID: id, Step: step, Done: done}})
	}
}

// takeRequests handles the requests made before this attempt, before its first order.
func (a *schedulerActor) takeRequests(ctx actor.Context) {
	step := a.state.Step
	holds := false // no step starts before it is requested
	for _, r := range a.spec.Requests {
		holds = holds || r.Step <= step && (r.Kind == event.ChangePause || r.Kind == event.ChangeStop)
	}
	for _, r := range a.spec.Requests {
		if r.Kind == event.ChangeCheckpoint && r.Step == 0 && step < a.spec.Steps && !holds && a.spec.Carry == nil {
			// The request is newer than the checkpoint from which the attempt resumes, if there is
			// one.
			r.Step = step + 1
			a.changes.due = append(a.changes.due, r)
			continue
		}
		a.request(ctx, r)
	}
}

// saves holds the requests for a checkpoint, by progress.
type saves struct {
	wanted  []uint64           // requests that the next checkpoint fulfills
	writing map[int64][]uint64 // by step, the requests of the checkpoint in progress
	written int64              // step of the newest written checkpoint
}

// begin: the write of a step's checkpoint starts.
func (s *saves) begin(step int64) {
	if s.writing == nil {
		s.writing = make(map[int64][]uint64)
	}
	s.writing[step] = append(s.writing[step], s.wanted...)
	s.wanted = nil
}

// fail: it could not be written, so the next checkpoint fulfills its requests.
func (s *saves) fail(step int64) {
	s.wanted = append(s.wanted, s.writing[step]...)
	delete(s.writing, step)
}

// end: it is written. It returns the requests that it fulfills.
func (s *saves) end(step int64) []uint64 {
	done := s.writing[step]
	delete(s.writing, step)
	s.written = max(s.written, step)
	return done
}
