package actors

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// written is the end of a checkpoint's write.
type written struct {
	Saved
	err error
}

// checkpointActor gathers the stages' state and writes it beside the training.
// When the run stops, it finishes the checkpoint in progress first: a
// checkpoint is whole or not there.
type checkpointActor struct {
	part
	begin   *BeginSave
	early   []*StageState // came before BeginSave, which another actor sends
	got     barrier
	saved   []stages.Saved
	copies  []tensorops.Arena // of them
	replyTo *actor.PID
	writers sync.WaitGroup
}

func (a *checkpointActor) Receive(ctx actor.Context) {
	defer a.rethrow(ctx)
	switch m := ctx.Message().(type) {
	case *Peers:
		a.replyTo, a.got = m.Scheduler, newBarrier(a.spec.ranks())
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
		if !a.failed && a.runID.accepts(m.Header) {
			a.take(ctx, m)
		}
	case *written:
		if m.err != nil {
			a.fail(ctx, m.Step, fmt.Errorf("checkpoint of step %d: %w", m.Step, m.err))
			return
		}
		a.cell.store(Snapshot{Step: m.Step})
		ctx.Send(a.replyTo, &m.Saved)
	case *actor.Stopping:
		// The writer's last message finds nobody; the file is what counts.
		a.writers.Wait()
	}
}

// take adds a stage's part; the last one starts the writing.
func (a *checkpointActor) take(ctx actor.Context, m *StageState) {
	if a.begin == nil || a.begin.Step != m.Step {
		a.early = append(a.early, m)
		return
	}
	a.saved, a.copies = append(a.saved, m.Saved...), append(a.copies, m.Copies)
	a.got.mark(m.Rank)
	if !a.got.all() {
		a.cell.store(a.got.snapshot(m.Step, 0))
		return
	}
	begin, saved, copies := a.begin, a.saved, a.copies
	a.begin, a.saved, a.copies = nil, nil, nil
	a.got.reset()
	ctx.Send(a.replyTo, &StateCopied{begin.Header})
	a.cell.store(Snapshot{Step: begin.Step, Doing: Writing})
	root, self := ctx.ActorSystem().Root, ctx.Self()
	a.writers.Add(1)
	go func() { // ends with the write; Stopping waits for it
		defer a.writers.Done()
		start := time.Now()
		dir, err := a.write(begin, saved)
		for _, c := range copies {
			c.Close()
		}
		root.Send(self, &written{Saved{Header: begin.Header, Dir: dir, Best: begin.Best, Took: time.Since(start)}, err})
	}()
}

func (a *checkpointActor) write(begin *BeginSave, saved []stages.Saved) (dir string, err error) {
	defer caught(&err)
	return a.spec.WriteCheckpoint(context.Background(), begin.State, saved, begin.Best)
}
