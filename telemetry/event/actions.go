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

// Clock says how the clock of a rank's process stands to this process's.
type Clock struct {
	Process string        // its name; "": it is this one, and the rest means nothing
	Ahead   time.Duration // how far it is ahead
	Within  time.Duration // what that may be wrong by; 0: nothing is known yet, and Ahead is 0
}

// Actions is what was recorded of the order that the stages work on: a training step, or a
// validation.
type Actions struct {
	Step  int64 // of a validation: the finished ones
	Phase Phase // 0: nothing has begun yet
	Began time.Time
	// Ranks are the finished actions of each rank, in the order in which they ran, by this
	// process's clock; of ranks in other processes those that it was told of. nil: the step is not recorded.
	// They must not be changed.
	Ranks [][]ActionTime
}
