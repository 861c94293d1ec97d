package actors

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/stages"
)

// checkpointActor gathers the stages' state and writes it beside the training.
// When the run stops, it finishes the checkpoint in the making first: a
// checkpoint is whole or not there.
type checkpointActor struct {
	spec    *Spec
	cell    *Cell
	tape    header
	begin   *BeginSave
	early   []*StageState // came before BeginSave, which another actor sends
	got     int
	saved   []stages.Saved
	replyTo *actor.PID
	writers sync.WaitGroup
}

func (a *checkpointActor) Receive(ctx actor.Context) {
	defer rethrow()
	switch m := ctx.Message().(type) {
	case *Wire:
		a.replyTo = m.Scheduler
	case *BeginSave:
		if !a.tape.accepts(m.Header) {
			return
		}
		a.begin = m
		early := a.early
		a.early = nil
		for _, s := range early {
			a.take(ctx, s)
		}
	case *StageState:
		if a.tape.accepts(m.Header) {
			a.take(ctx, m)
		}
	case *Saved:
		a.cell.store(Snapshot{Step: m.Step})
		ctx.Send(a.replyTo, m)
	case *actor.Stopping:
		// The writer's last message finds nobody; the file is what counts.
		a.writers.Wait()
	case StatusRequest:
		ctx.Respond(a.cell.Load())
	}
}

// take adds a stage's part; the last one starts the writing.
func (a *checkpointActor) take(ctx actor.Context, m *StageState) {
	if a.begin == nil || a.begin.Step != m.Step {
		a.early = append(a.early, m)
		return
	}
	a.saved = append(a.saved, m.Saved...)
	a.got++
	if a.got < a.spec.ranks() {
		a.cell.store(Snapshot{Step: m.Step, Doing: Waiting, Wait: WaitStages, From: stageName((m.Rank + 1) % a.spec.ranks()), Held: a.got, Need: a.spec.ranks()})
		return
	}
	begin, saved := a.begin, a.saved
	a.begin, a.saved, a.got = nil, nil, 0
	ctx.Send(a.replyTo, &StateCopied{begin.Header})
	a.cell.store(Snapshot{Step: begin.Step, Doing: Writing})
	root, self := ctx.ActorSystem().Root, ctx.Self()
	a.writers.Add(1)
	go func() { // ends with the write; Stopping waits for it
		defer a.writers.Done()
		start := time.Now()
		dir, err := a.write(begin, saved)
		root.Send(self, &Saved{Header: begin.Header, Dir: dir, Best: begin.Best, Took: time.Since(start), Err: err})
	}()
}

// write turns a panic into an error: this is not an actor's goroutine.
func (a *checkpointActor) write(begin *BeginSave, saved []stages.Saved) (dir string, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return a.spec.WriteCheckpoint(context.Background(), begin.State, saved, begin.Best)
}
