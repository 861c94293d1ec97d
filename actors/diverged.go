package actors

import "fmt"

// DivergedError ends a run that skipped too many steps in a row, since their losses or gradients
// were not finite: the weights are of no use any more.
type DivergedError struct {
	First, Last int64 // of the skipped steps
	Checkpoint  int64 // step of the last checkpoint before them; 0: there is none
}

func (e *DivergedError) Error() string {
	n := e.Last - e.First + 1
	advice := "no checkpoint was written before them; begin again with a lower optimizer.lr, or an optimizer.clip_norm"
	if e.Checkpoint > 0 {
		advice = fmt.Sprintf("the last checkpoint before them is of step %d: resume from it with a lower optimizer.lr, or an optimizer.clip_norm (--from-step %d, if there are newer ones)", e.Checkpoint, e.Checkpoint)
	}
	return fmt.Sprintf("training diverged: steps %d to %d were skipped, %d in a row, since the loss or the gradient was not finite (run.max_skipped_steps = %d); %s", e.First, e.Last, n, n, advice)
}

// diverged is the end of a run that skipped too many steps in a row; nil: it did not.
func (a *schedulerActor) diverged() error {
	n := a.state.SkippedInARow
	if a.spec.MaxSkipped == 0 || n < a.spec.MaxSkipped {
		return nil
	}
	return &DivergedError{First: a.state.Step - n + 1, Last: a.state.Step}
}
