package actors

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// Stages are the stages of a run in this process, while the run's other actors are in another
// process, the coordinator.
type Stages struct {
	*local
	supervisor *actor.PID
	weights    *WeightReader
	kill       sync.Once
	spawned    chan struct{} // closed when the stages can receive
	result     chan struct{} // closed when no actor is left
	done       chan struct{}
	killed     atomic.Bool
}

// StartStages starts the stages of the ranks whose host in spec.Hosts is "". coordinator is the
// address of the process that has called Start with the same run, attempt and tables. Only the
// parts of spec that a stage needs are used; see remotePart. When it returns, the stages can
// receive messages. They end when the coordinator's supervisor says so, or through Kill; call Wait
// afterwards. weights, if the stages need stored weights, is the reader that spec.Build uses.
func StartStages(spec Spec, coordinator string, weights *WeightReader) (*Stages, error) {
	tables, err := spec.remotePart()
	if err != nil {
		return nil, err
	}
	l, err := newLocal(spec)
	if err != nil {
		return nil, err
	}
	for rank, stream := range l.streams {
		if stream != nil {
			l.addCell(spec.stageName(rank), rank)
		}
	}
	l.system = spec.System
	if l.reader = weights; weights != nil {
		l.stopReads(weights)
	}
	s := &Stages{local: l, weights: weights, spawned: make(chan struct{}), result: make(chan struct{}), done: make(chan struct{})}
	if spec.Attach != nil {
		spec.Attach(newCodec(l, tables, toStages, coordinator))
	}
	name := SupervisorID(l.id.attempt)
	self := actor.NewPID(l.system.Address(), name)
	if weights != nil {
		weights.ask = func(request uint64, param, part string) {
			l.system.Root.Send(actor.NewPID(coordinator, actorID(l.id.attempt, weightsName)),
				&ReadWeight{Header: l.id.header(spec.Start.Step, 0), Request: request, Param: param, Part: part, ReplyTo: self})
		}
		l.readsFrom(weights, self)
	}
	l.log.Info("stages started", "coordinator", coordinator)
	s.supervisor, err = l.system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor {
		return &stageSupervisor{Stages: s, coordinator: actor.NewPID(coordinator, name)}
	}, actor.WithSupervisor(supervision)), name)
	if err != nil {
		close(s.result)
	}
	go s.finish() // ends with the last actor
	if err != nil {
		s.Wait()
		return nil, fmt.Errorf("spawn the stages' supervisor: %w", err)
	}
	// The coordinator may send as soon as it hears that the stages exist, and messages to missing
	// actors are lost.
	select {
	case <-s.spawned:
	case <-s.result:
	}
	return s, nil
}

// remotePart checks the parts of a Spec that stages need, without the data and the files.
func (s *Spec) remotePart() (t tables, err error) {
	switch {
	case s.System == nil:
		return t, fmt.Errorf("%w: Spec.System is missing: the stages need the actor system that is connected to the coordinator", ErrSpec)
	case len(s.Hosts) != s.ranks():
		return t, fmt.Errorf("%w: there are %d hosts for %d ranks", ErrSpec, len(s.Hosts), s.ranks())
	case !slices.Contains(s.Hosts, ""):
		return t, fmt.Errorf("%w: none of the %d ranks is in this process, so there is nothing to start", ErrSpec, s.ranks())
	}
	if err := s.checkDevices(); err != nil {
		return t, err
	}
	if err := errors.Join(s.checkEval(), s.checkShadows()); err != nil {
		return t, err
	}
	return s.analyseTables()
}

func (s *Stages) finish() {
	<-s.result
	if s.weights != nil {
		s.weights.stop()
	}
	if !s.killed.Load() {
		s.keep(false)
	}
	s.close()
	s.log.Info("stages ended", "kept", len(s.kept))
	close(s.done)
}

// Status reads the stages' cells. It needs no answer from an actor.
func (s *Stages) Status() event.Status { return event.Status{Time: time.Now(), Actors: s.status()} }

// Kill ends the stages at once, whatever the coordinator does.
func (s *Stages) Kill() {
	s.kill.Do(func() {
		s.killed.Store(true)
		s.system.Root.Send(s.supervisor, kill{})
	})
}

// Done is closed when the stages have ended.
func (s *Stages) Done() <-chan struct{} { return s.done }

// Wait waits for the end. Afterwards nothing of the stages remains, except for those that Kept returns.
func (s *Stages) Wait() { <-s.done }

// Kept returns, after the end, the stages that outlive the attempt, because the coordinator has said so. The caller owns them.
func (s *Stages) Kept() []*Kept {
	<-s.done
	return s.kept
}

// stageSupervisor spawns the stages of its process and represents the run's supervisor there: it
// forwards what they tell their parent.
type stageSupervisor struct {
	*Stages
	coordinator *actor.PID
	pids        map[string]*actor.PID
}

func (s *stageSupervisor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		s.spawn(ctx)
		close(s.spawned)
	case *Failed, *halted:
		ctx.Send(s.coordinator, m)
	case *Weight:
		s.weights.take(m)
	case *RankState:
		s.weights.take(&Weight{Header: m.Header, Request: m.Request, Tensor: m.Tensor, placed: m.placed, Err: m.Err})
	case kill:
		if s.weights != nil {
			s.weights.stop()
		}
		for _, pid := range s.pids {
			ctx.Send(pid, leave{})
		}
	case *actor.Terminated:
		for name, pid := range s.pids {
			if pid.Equal(m.Who) {
				delete(s.pids, name)
				ctx.Send(s.coordinator, &left{s.byName[name].Load().Rank})
			}
		}
		if len(s.pids) == 0 {
			ctx.Stop(ctx.Self())
		}
	case *actor.Stopped:
		close(s.result)
	}
}

// spawn makes the stages. Their messages come from other goroutines than their devices', mainly
// from connections, which must not be delayed by recording lists. So each stage receives on its
// mailbox's own goroutine.
func (s *stageSupervisor) spawn(ctx actor.Context) {
	s.pids = make(map[string]*actor.PID)
	for rank, stream := range s.streams {
		if stream == nil {
			continue
		}
		name := s.spec.stageName(rank)
		pid, err := ctx.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return s.newStage(rank) },
			actor.WithDispatcher(actor.NewDefaultDispatcher(throughput))), name)
		if err != nil {
			panic(err) // two ranks have the same name
		}
		s.pids[name] = pid
	}
}
