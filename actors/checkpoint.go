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

// written is the result of writing a checkpoint.
type written struct {
	Saved
	alone map[int]error // errors of ranks that could not write their parts
	err   error
}

// checkpointActor collects the stages' state and writes it while training continues. When the run
// stops, it first finishes the checkpoint in progress: a checkpoint is complete or absent. It
// abandons only a checkpoint for which stages in other processes have not written their parts.
type checkpointActor struct {
	part
	local   *local
	log     *slog.Logger
	peers   *Peers
	begin   *BeginSave
	early   []*StageState // arrived before BeginSave, which another actor sends
	got     barrier
	states  []*StageState
	alone   []bool   // ranks that cannot write their parts and send them instead
	writing *keepers // nil: no write in progress
	ended   context.Context
	end     context.CancelCauseFunc
	writers sync.WaitGroup
}

// errEnded: the run ended before the stages had written their parts of a checkpoint.
var errEnded = errors.New("the run ended before the stages had written their parts")

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
			what := "checkpoint"
			if m.Weights {
				what = "best weights"
			}
			a.fail(ctx, m.Step, fmt.Errorf("%s of step %d: %w", what, m.Step, m.err))
			return
		}
		a.cell.store(event.Snapshot{Step: m.Step})
		if a.spec.inPlace(m.Step) {
			ctx.Send(a.peers.Scheduler, &StateCopied{m.Header})
		}
		if passes {
			ctx.Send(a.peers.Scheduler, &notSaved{m.Header, m.Best, m.Weights, m.err})
			return
		}
		ctx.Send(a.peers.Scheduler, &m.Saved)
	case *actor.Stopping:
		// The writer's last message is not received; the file is what counts.
		a.end(errEnded)
		a.writers.Wait()
	}
}

// giveUp makes ranks send their parts from now on, together with the other ranks of their
// processes.
func (a *checkpointActor) giveUp(why map[int]error) {
	for rank, err := range why {
		if a.alone[rank] {
			continue // another rank of the same process did so
		}
		for other := range a.alone {
			a.alone[other] = a.alone[other] || a.spec.host(other) == a.spec.host(rank)
		}
		a.log.Warn("a stage cannot write its part of checkpoints; its process sends its parts from now on", "rank", rank, "process",
			a.spec.host(rank), "err", err)
	}
}

// pass hands an answer to the writer that requested it, and drops answers that were not requested.
func (a *checkpointActor) pass(m any) {
	select {
	case a.writing.answers <- m:
	default:
		if o, ok := m.(owner); ok {
			o.release()
		}
	}
}

// take adds a stage's part; the last part starts the write.
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
	if !a.spec.inPlace(begin.Step) { // otherwise the tensors being written must not change
		ctx.Send(a.peers.Scheduler, &StateCopied{begin.Header})
	}
	a.cell.store(event.Snapshot{Step: begin.Step, Doing: event.Writing})
	a.writers.Add(1)
	go func() { // ends with the write; the Stopping handler waits for it
		defer a.writers.Done()
		start := time.Now()
		dir, err := w.write()
		saved := Saved{Header: begin.Header, Dir: dir, Best: begin.Best, Weights: begin.Weights, Took: time.Since(start)}
		if err == nil && !saved.Weights {
			a.local.newest.Store(&saved)
		}
		root.Send(self, &written{Saved: saved, alone: w.alone, err: err})
	}()
}
