package actors

import (
	"fmt"
	"runtime/debug"
	"strconv"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// Names of the actors, as people read them.
const (
	schedulerName  = event.Scheduler
	loaderName     = "loader"
	checkpointName = "checkpoint"
	metricsName    = "metrics"
	weightsName    = "weights"
)

func stageName(rank int) string { return "stage " + strconv.Itoa(rank) }

// SupervisorPrefix is what the ids of all actors of runs begin with.
const SupervisorPrefix = "troupe-"

// SupervisorID is the id of the supervisor of an attempt, at the coordinator and, of the
// stages that are there, in other processes. The ids of the other actors begin with it.
func SupervisorID(attempt uuid.UUID) string { return SupervisorPrefix + attempt.String() }

// actorID is the id of an actor below the supervisor of an attempt.
func actorID(attempt uuid.UUID, name string) string { return SupervisorID(attempt) + "/" + name }

// runID is the run and the attempt at it that an actor belongs to.
type runID struct{ run, attempt uuid.UUID }

// accepts reports whether a message is of this run and attempt.
func (r runID) accepts(m Header) bool { return m.Run == r.run && m.Attempt == r.attempt }

func (r runID) header(step, order int64) Header {
	return Header{Run: r.run, Attempt: r.attempt, Step: step, Order: order}
}

// Panic is a panic inside an actor, with the place it came from.
type Panic struct {
	Value any
	Stack []byte

	again bool // the actor has panicked before
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v\n%s", p.Value, p.Stack) }

// Unwrap returns the error that was panicked with, if it was one.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// caught is deferred in goroutines that are no actor's, where a panic would end
// the process: it makes it the goroutine's error.
func caught(err *error) {
	if v := recover(); v != nil {
		*err = &Panic{Value: v, Stack: debug.Stack()}
	}
}

// part is what the actors of a run have in common.
type part struct {
	spec   *Spec
	cell   *statusCell
	runID  runID
	failed bool // or told to halt: nothing starts any more

	panicked bool
}

// fail tells the supervisor, which stops the run. step is where in the run it was.
func (p *part) fail(ctx actor.Context, step int64, err error) {
	p.failed = true
	p.cell.store(event.Snapshot{Step: step, Doing: event.Failing})
	ctx.Send(ctx.Parent(), &Failed{Header: p.runID.header(step, 0), Actor: p.cell.Load().Actor, Err: err})
}

// rethrow is deferred in every Receive. To the run a panic is its actor's failure as any
// other; to protoactor it is one that supervision decides about.
func (p *part) rethrow(ctx actor.Context) {
	if v := recover(); v != nil {
		err := &Panic{Value: v, Stack: debug.Stack(), again: p.panicked}
		p.panicked = true
		p.fail(ctx, p.cell.Load().Step, err)
		panic(err)
	}
}

// supervision is how the supervisor's children are supervised. None is ever restarted: an
// actor that has panicked goes on as one that has failed, with what it owns, to release
// that; when this panics too it is stopped. That the run ends is for the supervisor to
// see to, which the actor has told.
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
	first int // that is out; all before have come
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

// snapshot says that reports are missing. The first rank that is out stands for
// all of them.
func (r *barrier) snapshot(step int64, p event.Phase) event.Snapshot {
	s := event.Snapshot{Step: step, Phase: p, Doing: event.Waiting, Wait: event.WaitStages, Held: r.n, Need: len(r.came)}
	if r.first < len(r.came) {
		s.From = r.name(r.first)
	}
	return s
}
