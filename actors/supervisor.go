package actors

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// supervisor spawns and supervises the actors of a run in its process; it only knows those of
// stages in other processes. A failed actor is never silently restarted: the first failure stops
// everything in order and is the run's error.
//
// The order is: the stages halt one by one as their devices become idle. When all have, no tensor
// is sent any more, and every actor stops after its mailbox is empty, so that nothing in it is
// lost. The metrics actor stops after the scheduler, which has the last step's line written when it
// stops.
type supervisor struct {
	*local
	tables tables
	result chan<- Outcome // capacity 1

	root    *actor.RootContext
	pids    map[string]*actor.PID // actors that are alive
	active  map[string]bool       // stages that may still send tensors
	ending  bool
	resting bool      // all stages have halted
	last    lastState // the scheduler's last state; before that, the start
	told    bool
	outcome Outcome
	lost    []int       // ranks whose processes have failed
	leaving []int       // ranks whose processes leave
	unkept  error       // why the stages do not outlive the attempt
	overdue *time.Timer // limits the wait for stages in other processes; nil: no wait
}

// decideKeep decides whether the stages outlive the attempt, which ends because some ranks are lost. If the state of those that leave is
// nowhere else, they count as not lost.
func (s *supervisor) decideKeep(m *lost) {
	if m.leaves {
		s.leaving = union(s.leaving, m.ranks)
	} else {
		s.lost = union(s.lost, m.ranks)
	}
	if s.unkept = errNoKeep; s.spec.Keep != nil {
		if s.unkept = s.spec.Keep(union(s.lost, s.leaving)); s.unkept != nil && len(s.leaving) > 0 {
			s.unkept = s.spec.Keep(s.lost)
		}
	}
	s.keeps.Store(s.unkept == nil)
}

// carryOver adds to the outcome what the next attempt continues with.
func (s *supervisor) carryOver() {
	c := s.last.carry
	s.outcome.Lost = union(s.lost, s.leaving)
	if s.unkept == nil && c == nil {
		s.unkept = errNotReady
	}
	if err := s.missing.Load(); err != nil && s.unkept == nil { // a restart makes the step again
		s.unkept = *err
	}
	if s.outcome.Unkept = s.unkept; s.unkept == nil {
		c.settle(&s.spec, s.newest.Load())
		s.outcome.Carry = c
	}
}

// The reasons not to keep stages.
var (
	errNoKeep   = errors.New("the run does not keep its stages")
	errNotReady = errors.New("not every stage had its weights")
	errNoHalt   = errors.New("some stages did not halt in time")
)

// haltTime is how long a run that ends with an error waits for stages in other processes to halt,
// if Spec.HaltWithin is 0: longer than any action should take. Without it, a process that is alive
// but whose stage hangs would block the end of the run forever.
const haltTime = 30 * time.Second

// overdue: stages in other processes have not halted in time.
type overdue struct{}

// Outcome is how a run ended.
type Outcome struct {
	State   trainstate.State
	Updates event.Updates
	Stopped bool  // ended before the last step, by request
	Early   bool  // ended before the last step, because of Spec.Patience
	Err     error // the first failure
	// Regroup: only the attempt has ended, and the run continues from its checkpoint on other processes; nil: it has ended.
	Regroup *event.RegroupEvent

	// Carry is what an attempt that ended because some ranks were lost passes on to the next one, which can adopt the other stages; nil:
	// they are not kept, for the reason in Unkept.
	Carry  *Carry
	Unkept error
	Lost   []int // the ranks

	lost  bool // a process of some ranks failed, so another attempt may follow
	again bool // the attempt was a renewal that failed, so the run may restart
}

// ActorError is an actor's failure, the root cause of a run's end.
type ActorError struct {
	Actor string
	Step  int64
	Err   error
}

func (e *ActorError) Error() string {
	return fmt.Sprintf("%s failed in step %d: %v", e.Actor, e.Step, e.Err)
}

func (e *ActorError) Unwrap() error { return e.Err }

// ErrKilled: the run was ended at once by Kill.
var ErrKilled = errors.New("the run was killed")

// kill ends the run at once.
type kill struct{}

// ping asks whether the run's actors answer; the reply is pong.
type ping struct{}
type pong struct{}

func (s *supervisor) Receive(ctx actor.Context) {
	defer s.rescue(ctx)
	switch m := ctx.Message().(type) {
	case *actor.Started:
		s.root, s.last.state = ctx.ActorSystem().Root, s.spec.Start
		s.spawn(ctx)
	case *Failed:
		if s.id.accepts(m.Header) {
			s.end(ctx, s.failure(m))
		}
	case *finished:
		s.end(ctx, Outcome{Stopped: m.stopped, Early: m.early, Regroup: m.regroup, Err: m.err})
	case ping:
		ctx.Respond(pong{})
	case kill:
		if !s.ending {
			s.end(ctx, Outcome{Err: ErrKilled})
		}
	case Request:
		if m.Kind == event.ChangeStop {
			s.endSoon()
		}
		if pid := s.pids[schedulerName]; pid != nil {
			ctx.Send(pid, m)
		}
	case *regroup, *between:
		if pid := s.pids[schedulerName]; pid != nil {
			ctx.Send(pid, m)
		}
	case takeWeights:
		if pid := s.pids[schedulerName]; pid != nil {
			ctx.Send(pid, m.weightCopy)
		}
	case *publish:
		if pid := s.pids[metricsName]; pid != nil {
			ctx.Send(pid, m)
		}
	case *RankState:
		s.spec.Reader.take(&Weight{Header: m.Header, Request: m.Request, Tensor: m.Tensor, placed: m.placed, Err: m.Err})
	case *halted:
		// The stage may have left without being told; then lost follows, with the reason.
		s.rest(s.spec.stageName(m.rank))
	case *left:
		s.gone(ctx, s.spec.stageName(m.rank))
	case *lost:
		if !s.ending || s.outcome.lost {
			if !m.leaves && len(s.lost) == 0 && len(s.leaving) > 0 { // the failure comes first in what the run says
				s.outcome.Err = fmt.Errorf("%w; %w", m.err, s.outcome.Err)
			}
			s.decideKeep(m)
		}
		if !s.ending { // otherwise the stages are already leaving
			s.end(ctx, Outcome{Err: m.err, lost: true})
		}
		if m.leaves {
			return
		}
		for _, rank := range m.ranks {
			if s.spec.host(rank) != "" {
				s.gone(ctx, s.spec.stageName(rank))
			}
		}
	case overdue:
		s.without(ctx)
	case *actor.Terminated:
		s.gone(ctx, s.name(m.Who))
	case *lastState:
		s.last, s.told = *m, true
		s.stopLast(ctx)
	case *actor.Stopping:
		s.endNow()
		if !s.ending && s.outcome.Err == nil { // stopped from outside, through the caller's system
			s.outcome.Err = ErrKilled
		}
		for name, pid := range s.pids { // protoactor stops the remaining actors now
			if pid.Address != s.system.Address() {
				s.root.Send(pid, leave{})
			}
			delete(s.active, name)
		}
	case *actor.Stopped:
		if s.overdue != nil {
			s.overdue.Stop()
		}
		s.outcome.State, s.outcome.Updates = s.last.state, s.last.updates
		if s.outcome.lost {
			s.carryOver()
		}
		s.result <- s.outcome
	}
}

// failure is the outcome of an actor's failure.
func (s *supervisor) failure(m *Failed) Outcome {
	var err error = &ActorError{m.Actor, m.Step, m.Err}
	renewing := s.renewing.Load() || s.spec.Rescue != nil
	if renewing {
		err = fmt.Errorf("%w: %w", ErrRenewal, err)
	}
	return Outcome{Err: err, again: renewing}
}

// rescue ends the run if the supervisor itself panics. No actor of the run is above it, and
// protoactor would start another run in its place. A guardian that doesn't would remain in a
// caller's system.
func (s *supervisor) rescue(ctx actor.Context) {
	if v := recover(); v != nil {
		s.outcome.Err = &Panic{Value: v, Stack: debug.Stack()}
		ctx.Stop(ctx.Self())
	}
}

// name returns the name of an actor for users.
func (s *supervisor) name(who *actor.PID) string {
	for name, pid := range s.pids {
		if pid.Equal(who) {
			return name
		}
	}
	return who.Id
}

// spawn makes the actors and tells them their peers.
func (s *supervisor) spawn(ctx actor.Context) {
	s.pids, s.active = make(map[string]*actor.PID), make(map[string]bool)
	if slices.ContainsFunc(s.spec.Requests, func(q Request) bool { return q.Kind == event.ChangeStop }) {
		s.endSoon()
	}
	add := func(name string, producer actor.Producer, opts ...actor.PropsOption) *actor.PID {
		pid, err := ctx.SpawnNamed(actor.PropsFromProducer(producer, opts...), name)
		if err != nil {
			panic(err) // two ranks have the same name
		}
		s.pids[name] = pid
		return pid
	}
	peers := &Peers{Header: s.id.header(s.spec.Start.Step, 0)}
	peers.Scheduler = add(schedulerName, func() actor.Actor { return newSchedulerActor(s.local, s.tables) })
	peers.Loader = add(loaderName, func() actor.Actor { return &loader{part: s.part(loaderName)} })
	peers.Checkpoint = add(checkpointName, func() actor.Actor {
		return &checkpointActor{part: s.part(checkpointName), local: s.local, log: s.log}
	})
	peers.Metrics = add(metricsName, func() actor.Actor { return &metricsActor{part: s.part(metricsName), local: s.local} })
	if s.spec.Weights != nil {
		add(weightsName, func() actor.Actor { return &weightsActor{part: s.part(weightsName), host: s.host} })
	}
	// A stage receives and records on the goroutine that sends to it, for example its device's: no
	// goroutine is switched between two actions. On the mailbox's own goroutine, with actions of 1
	// ms, steps take up to 1 % longer on 2 ranks, 1 to 2 % on 8, and 2 to 5 % on 16 ranks of 2
	// cores: go test -run '^$' -bench Dispatcher -benchtime 10x ./actors, 2026-11-22, in
	// docs/bench/2026-11.md.
	dispatcher := s.spec.dispatcher
	if dispatcher == nil {
		dispatcher = actor.NewSynchronizedDispatcher(throughput)
	}
	for r := range s.streams {
		name := s.spec.stageName(r)
		s.active[name] = true
		if host := s.spec.host(r); host != "" {
			s.pids[name] = actor.NewPID(host, actorID(s.id.attempt, name))
		} else {
			add(name, func() actor.Actor { return s.newStage(r) }, actor.WithDispatcher(dispatcher))
		}
		peers.Stages = append(peers.Stages, s.pids[name])
	}
	// The scheduler first, since stages report to it.
	for _, pid := range append([]*actor.PID{peers.Scheduler, peers.Checkpoint}, peers.Stages...) {
		ctx.Send(pid, peers)
	}
}

// end starts the end of the run. The first reason counts, but a run whose last line could not be
// written is not finished.
func (s *supervisor) end(ctx actor.Context, o Outcome) {
	if s.ending {
		if s.outcome.Err == nil {
			s.outcome.Err = o.Err
		}
		return
	}
	s.ending, s.outcome = true, o
	for name := range s.active {
		s.root.Send(s.pids[name], halt{})
	}
	if o.Err != nil {
		s.endNow()
		if s.apart {
			self := ctx.Self()
			s.overdue = time.AfterFunc(s.haltWithin(), func() { s.root.Send(self, overdue{}) }) // stopped with the supervisor
		}
	}
	s.rest("") // if none is active any more
}

func (s *supervisor) haltWithin() time.Duration {
	if s.spec.HaltWithin > 0 {
		return s.spec.HaltWithin
	}
	return haltTime
}

// without stops waiting for the stages in other processes that have not halted in time; if all
// have, for those that have not left.
func (s *supervisor) without(ctx actor.Context) {
	var late, left []string
	for name, pid := range s.pids {
		switch {
		case pid.Address == s.system.Address():
		case s.active[name]:
			late = append(late, name)
		default:
			left = append(left, name)
		}
	}
	if len(late) == 0 {
		late, left = left, nil
	}
	if len(late) == 0 {
		return
	}
	if slices.Sort(late); s.unkept == nil {
		s.unkept = errNoHalt
		s.keeps.Store(false)
	}
	s.log.Warn("the run ends without waiting for stages that do not answer", "stages", strings.Join(late, ", "), "waited", s.haltWithin())
	if len(left) > 0 {
		s.overdue.Reset(s.haltWithin())
	}
	for _, name := range late {
		s.root.Send(s.pids[name], leave{})
		s.gone(ctx, name)
	}
}

// rest records that a stage has halted. After the last one, every actor stops after its mailbox is
// empty.
func (s *supervisor) rest(stage string) {
	delete(s.active, stage)
	if !s.ending || s.resting || len(s.active) > 0 {
		return
	}
	s.resting = true
	for name, pid := range s.pids {
		switch {
		case pid.Address != s.system.Address():
			s.root.Send(pid, leave{keep: s.keeps.Load()})
		case name != metricsName || s.pids[schedulerName] == nil:
			s.root.Poison(pid)
		}
	}
}

// gone records that an actor has ended; the supervisor is the last.
func (s *supervisor) gone(ctx actor.Context, name string) {
	delete(s.pids, name)
	if pid := s.pids[metricsName]; pid != nil && s.resting && name == schedulerName {
		s.root.Poison(pid)
	}
	s.rest(name) // if it could not report this itself
	s.stopLast(ctx)
}

// stopLast stops the supervisor after all others have ended. The scheduler's last message may
// arrive after the notice of its end, which overtakes other messages.
func (s *supervisor) stopLast(ctx actor.Context) {
	if len(s.pids) == 0 && s.told {
		ctx.Stop(ctx.Self())
	}
}
