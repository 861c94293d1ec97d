package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// written is the end of a checkpoint's write.
type written struct {
	Saved
	alone map[int]error // why ranks could not write their parts
	err   error
}

// checkpointActor gathers the stages' state and writes it beside the training.
// When the run stops, it finishes the checkpoint in progress first: a
// checkpoint is whole or not there. Only one that stages in other processes have not written
// their parts of is given up.
type checkpointActor struct {
	part
	log     *slog.Logger
	peers   *Peers
	begin   *BeginSave
	early   []*StageState // came before BeginSave, which another actor sends
	got     barrier
	states  []*StageState
	alone   []bool   // ranks that could not write their parts: they send them
	writing *keepers // nil: nothing is written
	ended   context.Context
	end     context.CancelCauseFunc
	writers sync.WaitGroup
}

// errEnded: the stages have left before they have written their parts of a checkpoint.
var errEnded = errors.New("the run has ended before the stages have written their parts")

func (a *checkpointActor) Receive(ctx actor.Context) {
	defer a.rethrow(ctx)
	switch m := ctx.Message().(type) {
	case *actor.Started:
		a.ended, a.end = context.WithCancelCause(context.Background())
	case *Peers:
		a.peers, a.got, a.alone = m, newBarrier(a.spec), make([]bool, a.spec.ranks())
	case *BeginSave:
		if a.failed || !a.runID.accepts(m.Header) {
			return
		}
		a.begin = m
		early := a.early
		a.early = nil
		for _, s := range early {
			a.take(ctx, s)
		}
	case *StageState:
		switch {
		case a.failed || !a.runID.accepts(m.Header):
		case a.writing != nil && a.writing.begin.Step == m.Step:
			a.pass(m)
		default:
			a.take(ctx, m)
		}
	case *StateWritten:
		if a.runID.accepts(m.Header) && a.writing != nil && a.writing.begin.Step == m.Step {
			a.pass(m)
		}
	case *written:
		a.writing = nil
		a.giveUp(m.alone)
		passes := m.err != nil && a.spec.MayPass != nil && a.spec.MayPass(m.err)
		if m.err != nil && !passes {
			a.fail(ctx, m.Step, fmt.Errorf("checkpoint of step %d: %w", m.Step, m.err))
			return
		}
		a.cell.store(event.Snapshot{Step: m.Step})
		if a.spec.inPlace(m.Step) {
			ctx.Send(a.peers.Scheduler, &StateCopied{m.Header})
		}
		if passes {
			ctx.Send(a.peers.Scheduler, &notSaved{m.Header, m.Best, m.err})
			return
		}
		ctx.Send(a.peers.Scheduler, &m.Saved)
	case *actor.Stopping:
		// The writer's last message finds nobody; the file is what counts.
		a.end(errEnded)
		a.writers.Wait()
	}
}

// giveUp has ranks send their parts from now on, and the others of their processes too.
func (a *checkpointActor) giveUp(why map[int]error) {
	for rank, err := range why {
		if a.alone[rank] {
			continue // by another one of the same process
		}
		for other := range a.alone {
			a.alone[other] = a.alone[other] || a.spec.host(other) == a.spec.host(rank)
		}
		a.log.Warn("a stage can't write its part of checkpoints; its process sends what it saves from now on", "rank", rank, "process",
			a.spec.host(rank), "err", err)
	}
}

// pass gives the writer an answer that it has asked for. More than it asks for is nobody's.
func (a *checkpointActor) pass(m any) {
	select {
	case a.writing.answers <- m:
	default:
		if o, ok := m.(owner); ok {
			o.release()
		}
	}
}

// take adds a stage's part; the last one starts the writing.
func (a *checkpointActor) take(ctx actor.Context, m *StageState) {
	if a.begin == nil || a.begin.Step != m.Step {
		a.early = append(a.early, m)
		return
	}
	if m.Kept && a.alone[m.Rank] {
		ctx.Send(a.peers.Stages[m.Rank], &SendState{m.Header})
		return
	}
	a.states = append(a.states, m)
	a.got.mark(m.Rank)
	if !a.got.all() {
		a.cell.store(a.got.snapshot(m.Step, 0))
		return
	}
	begin := a.begin
	root, self := ctx.ActorSystem().Root, ctx.Self()
	w := &keepers{spec: a.spec, cell: a.cell, begin: begin, stages: a.peers.Stages, root: root, states: make([]*StageState, len(a.states)),
		answers: make(chan any, 2*len(a.states)), ended: a.ended, alone: make(map[int]error)}
	for _, s := range a.states {
		w.states[s.Rank] = s
	}
	a.begin, a.states, a.writing = nil, nil, w
	a.got.reset()
	if !a.spec.inPlace(begin.Step) { // else nobody may change what is written
		ctx.Send(a.peers.Scheduler, &StateCopied{begin.Header})
	}
	a.cell.store(event.Snapshot{Step: begin.Step, Doing: event.Writing})
	a.writers.Add(1)
	go func() { // ends with the write; Stopping waits for it
		defer a.writers.Done()
		start := time.Now()
		dir, err := w.write()
		root.Send(self, &written{Saved: Saved{Header: begin.Header, Dir: dir, Best: begin.Best, Took: time.Since(start)}, alone: w.alone,
			err: err})
	}()
}
