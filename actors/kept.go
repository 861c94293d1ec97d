package actors

import (
	"context"
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"
)

// keptState is a stage's part of a checkpoint that it writes itself, because its process sees the
// run's folder.
type keptState struct {
	state   *StageState
	busy    bool // it is being written
	dropped bool // release it after the write
}

// keptStates holds the kept states of a stage.
type keptStates struct {
	states map[int64]*keptState // by step
	quit   context.CancelFunc   // stops the writes
	live   context.Context      // canceled by quit
}

func (k *keptStates) open() {
	k.states = make(map[int64]*keptState)
	k.live, k.quit = context.WithCancel(context.Background())
}

// ownWritten tells a stage that its part of a checkpoint was written, or could not be.
type ownWritten struct {
	answer StateWritten
}

func (*ownWritten) IgnoreDeadLetterLogging() {}

// keepState keeps a state, and returns the message for the checkpoint actor.
func (a *stageActor) keepState(s *StageState) *StageState {
	a.kept.states[s.Step] = &keptState{state: s}
	told := &StageState{Header: s.Header, Rank: s.Rank, Saved: slices.Clone(s.Saved), Kept: true}
	for i := range told.Saved {
		told.Saved[i].Data, told.Saved[i].Narrow = nil, nil
	}
	return told
}

// writeKept writes a kept state while training continues.
func (a *stageActor) writeKept(ctx actor.Context, m *WriteState) {
	k := a.kept.states[m.Step]
	done := &ownWritten{StateWritten{Header: m.Header, Rank: a.rank}}
	if k == nil || k.busy || len(m.Places) != len(k.state.Saved) {
		done.answer.Err = fmt.Errorf("stage %d keeps no state of step %d to write to %d places", a.rank, m.Step, len(m.Places))
		ctx.Send(a.peers.Checkpoint, &done.answer)
		return
	}
	k.busy = true
	a.local.builders.Add(1)
	go func() { // ends with the write, which quit stops
		defer a.local.builders.Done()
		defer a.root.Send(a.self, done)
		defer caught(&done.answer.Err)
		done.answer.Sums, done.answer.Err = a.spec.WriteOwn(a.kept.live, m.Step, m.Places, k.state.Saved)
	}()
}

func (a *stageActor) keptWritten(ctx actor.Context, m *ownWritten) {
	k := a.kept.states[m.answer.Step]
	k.busy = false
	if k.dropped {
		a.dropKept(m.answer.Step)
		return
	}
	ctx.Send(a.peers.Checkpoint, &m.answer)
}

// sendKept sends a state that the stage could not write.
func (a *stageActor) sendKept(ctx actor.Context, m *SendState) {
	k := a.kept.states[m.Step]
	if k == nil || k.busy {
		a.fail(ctx, m.Step, fmt.Errorf("the stage keeps no state of step %d to send", m.Step))
		return
	}
	delete(a.kept.states, m.Step)
	ctx.Send(a.peers.Checkpoint, k.state)
}

func (a *stageActor) dropKept(step int64) {
	switch k := a.kept.states[step]; {
	case k == nil:
	case k.busy:
		k.dropped = true
	default:
		delete(a.kept.states, step)
		k.state.release()
	}
}
