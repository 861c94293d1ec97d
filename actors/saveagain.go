package actors

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// saveAgain decides when to write another checkpoint after a failed one.
type saveAgain struct {
	pending bool // a pause is in progress
	tries   int  // consecutive failures, and how many of them at the end of the run
	last    int
	timer   *time.Timer
}

// saveNextTry says that the pause is over.
type saveNextTry struct{}

// waits reports whether a due checkpoint has to wait. The first checkpoint at the end of the run
// does not wait for an earlier pause.
func (s *saveAgain) waits(last bool) bool {
	if last && s.last == 0 {
		s.stop()
	}
	return s.pending
}

// stop ends a pause.
func (s *saveAgain) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.pending = false
}

// pauseAfter returns the pause after a number of attempts.
func pauseAfter(tries int) time.Duration {
	pause := saveAgainFirst
	for range tries - 1 {
		if pause *= 2; pause >= saveAgainMost {
			return saveAgainMost
		}
	}
	return pause
}

// notSaved writes another checkpoint after a pause, because one could not be written. At the end of
// the run there are LimitLastSaves attempts, then the run fails.
func (a *schedulerActor) notSaved(ctx actor.Context, m *notSaved) {
	a.saving--
	if m.Weights {
		ctx.Send(a.peers.Metrics, &publish{event.WarningEvent{Text: fmt.Sprintf("cannot write the best weights, of step %d: %v; training continues",
			m.Step, m.Err)}})
		return
	}
	a.saves.fail(m.Step)
	if a.saved == m.Step {
		a.saved = -1
	}
	a.keepsGroup()
	a.best = a.best || m.Best && a.state.BestStep == a.state.Step
	tries := &a.again.tries
	step := a.state.Step
	last := (step >= a.spec.Steps || a.stop || a.impatient()) && m.Step == step
	if *tries++; last {
		tries = &a.again.last
		if *tries++; *tries >= LimitLastSaves {
			a.fail(ctx, m.Step, fmt.Errorf("checkpoint of step %d, after %d attempts: %w", m.Step, *tries, m.Err))
			return
		}
	}
	pause := pauseAfter(*tries)
	text := fmt.Sprintf("cannot write the checkpoint of step %d: %v; training continues, and the next checkpoint is written in %.1f s",
		m.Step, m.Err, pause.Seconds())
	if last {
		text = fmt.Sprintf("cannot write the last checkpoint, of step %d: %v; trying again in %.1f s, %d of %d attempts are left", m.Step,
			m.Err, pause.Seconds(), LimitLastSaves-*tries, LimitLastSaves)
	}
	ctx.Send(a.peers.Metrics, &publish{event.WarningEvent{Text: text}})
	a.again.stop()
	a.again.pending = true
	root, self := ctx.ActorSystem().Root, ctx.Self()
	a.again.timer = time.AfterFunc(pause, func() { root.Send(self, &saveNextTry{}) }) // ends by itself, or with the actor
}
