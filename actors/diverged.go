package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// DivergedError ends a run that skipped too many steps in a row because their losses or gradients
// were not finite. The weights are then useless.
type DivergedError struct {
	First, Last int64 // first and last skipped step
	Checkpoint  int64 // step of the last checkpoint before them; 0: none
}

func (e *DivergedError) Error() string {
	n := e.Last - e.First + 1
	advice := "no checkpoint was written before them: start again with a lower optimizer.lr, or with an optimizer.clip_norm"
	if e.Checkpoint > 0 {
		advice = fmt.Sprintf("the last checkpoint before them is of step %d: start another run from it (model.from = its folder, another run.name) with a lower optimizer.lr, or with an optimizer.clip_norm", e.Checkpoint)
	}
	return fmt.Sprintf("training diverged: steps %d to %d were skipped, %d in a row, because the loss or the gradient was not finite (run.max_skipped_steps = %d); %s", e.First, e.Last, n, n, advice)
}

// diverged returns the error of a run that skipped too many steps in a row; nil: it did not.
func (a *schedulerActor) diverged() error {
	n := a.state.SkippedInARow
	if a.spec.MaxSkipped == 0 || n < a.spec.MaxSkipped {
		return nil
	}
	return &DivergedError{First: a.state.Step - n + 1, Last: a.state.Step}
}

// warnDiverging warns if the loss of a validation is above that before training, or is not a number:
// the weights are worse than those at the start. It warns once, until a validation is better again.
func (a *schedulerActor) warnDiverging(ctx actor.Context, loss float64) {
	first, step := a.state.FirstValLoss, a.state.Step
	was := a.diverging
	a.diverging = step > 0 && (!finite(loss) || first != nil && loss > *first)
	if !a.diverging || was {
		return
	}
	text := fmt.Sprintf("the validation loss of step %d is %.4g", step, loss)
	if first != nil {
		text += fmt.Sprintf(", but before training it was %.4g", *first)
	}
	ctx.Send(a.peers.Metrics, &publish{event.WarningEvent{Text: text +
		": if it does not fall again, use a lower optimizer.lr, or more optimizer.warmup_steps"}})
}
