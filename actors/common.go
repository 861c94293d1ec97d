package actors

import (
	"fmt"
	"runtime/debug"
	"strconv"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// The names of the actors as users read them.
const (
	schedulerName  = event.Scheduler
	loaderName     = "loader"
	checkpointName = "checkpoint"
	metricsName    = "metrics"
	weightsName    = "weights"
)

func stageName(rank int) string { return "stage " + strconv.Itoa(rank) }

// SupervisorPrefix is the prefix of the ids of all actors of runs.
const SupervisorPrefix = "troupe-"

// SupervisorID returns the id of an attempt's supervisor: the run's at the coordinator, and that of
// its stages in each other process. The ids of the other actors start with it.
func SupervisorID(attempt uuid.UUID) string { return SupervisorPrefix + attempt.String() }

// actorID returns the id of an actor below the supervisor of an attempt.
func actorID(attempt uuid.UUID, name string) string { return SupervisorID(attempt) + "/" + name }

// runID identifies the run and the attempt to which an actor belongs.
type runID struct{ run, attempt uuid.UUID }

// accepts reports whether a message belongs to this run and attempt.
func (r runID) accepts(m Header) bool { return m.Run == r.run && m.Attempt == r.attempt }

func (r runID) header(step, order int64) Header {
	return Header{Run: r.run, Attempt: r.attempt, Step: step, Order: order}
}

// Panic is a panic inside an actor, with the stack trace.
type Panic struct {
	Value any
	Stack []byte

	again bool // the actor has panicked before
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v\n%s", p.Value, p.Stack) }

// Unwrap returns the panic's value if it was an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// caught is deferred in goroutines that do not belong to an actor, where a panic would end the
// process. It turns the panic into the goroutine's error.
func caught(err *error) {
	if v := recover(); v != nil {
		*err = &Panic{Value: v, Stack: debug.Stack()}
	}
}

// part is the common part of the actors of a run.
type part struct {
	spec   *Spec
	cell   *statusCell
	runID  runID
	failed bool // or told to halt: nothing new starts

	panicked bool
}

// fail tells the supervisor, which stops the run. step is the step of the failure.
func (p *part) fail(ctx actor.Context, step int64, err error) {
	p.failed = true
	p.cell.store(event.Snapshot{Step: step, Doing: event.Failing})
	ctx.Send(ctx.Parent(), &Failed{Header: p.runID.header(step, 0), Actor: p.cell.Load().Actor, Err: err})
}

// rethrow is deferred in every Receive. For the run, a panic is a failure of its actor like any
// other; protoactor hands it to supervision.
func (p *part) rethrow(ctx actor.Context) {
	if v := recover(); v != nil {
		err := &Panic{Value: v, Stack: debug.Stack(), again: p.panicked}
		p.panicked = true
		p.fail(ctx, p.cell.Load().Step, err)
		panic(err)
	}
}

// supervision is the strategy for the supervisor's children. No actor is ever restarted. An actor
// that has panicked continues as a failed one, to release what it owns; if it panics again it is
// stopped. The actor has told the supervisor, which ends the run.
var supervision = actor.NewOneForOneStrategy(0, 0, func(reason any) actor.Directive {
	if p, ok := reason.(*Panic); ok && !p.again {
		return actor.ResumeDirective
	}
	return actor.StopDirective
})

// barrier waits for a report of every rank.
type barrier struct {
	came  []bool
	n     int
	first int // the first missing rank; all before it have reported
	name  func(rank int) string
}

func newBarrier(s *Spec) barrier {
	return barrier{came: make([]bool, s.ranks()), name: s.stageName}
}

func (r *barrier) mark(rank int) {
	if !r.came[rank] {
		r.came[rank] = true
		r.n++
	}
	for r.first < len(r.came) && r.came[r.first] {
		r.first++
	}
}

func (r *barrier) all() bool { return r.n == len(r.came) }

func (r *barrier) reset() {
	clear(r.came)
	r.n, r.first = 0, 0
}

// snapshot describes the missing reports. The first missing rank stands for all of them.
func (r *barrier) snapshot(step int64, p event.Phase) event.Snapshot {
	s := event.Snapshot{Step: step, Phase: p, Doing: event.Waiting, Wait: event.WaitStages, Held: r.n, Need: len(r.came)}
	if r.first < len(r.came) {
		s.From = r.name(r.first)
	}
	return s
}
