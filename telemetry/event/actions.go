package event

import (
	"time"

	"github.com/troupe-ml/troupe/scheduler"
)

// ActionTime says when an action ran.
type ActionTime struct {
	Action     scheduler.Action
	Start, End time.Time
}

// Clock compares the clock of a rank's process with this process's clock.
type Clock struct {
	Process string        // the name of the rank's process; "": it is this process, and the other fields are unused
	Ahead   time.Duration // how far its clock is ahead
	Within  time.Duration // the uncertainty of Ahead; 0: not measured yet, and Ahead is 0
}

// Actions are the recorded actions of the order that the stages work on: a training step or a validation.
type Actions struct {
	Step  int64 // the current step; of a validation, the number of finished steps
	Phase Phase // 0: no order has begun yet
	Began time.Time
	// Ranks are the finished actions of each rank, in the order in which they ran, in times of this process's clock.
	// Actions of ranks in other processes are those that have been reported so far. nil: the step is not recorded.
	// Callers must not change them.
	Ranks [][]ActionTime
}
