package event

import (
	"time"

	"github.com/troupe-ml/troupe/telemetry"
)

// Event is something that happened in a run: one of the types below.
type Event = any

// StepEvent: a step ended, or (Step 0) the validation before training.
type StepEvent struct {
	telemetry.Record
	IdealBubblePct float64        // of the table at unit costs
	Trace          [][]ActionTime // by rank, when the run traces; by this process's clock
	Clocks         []Clock        // by rank, of a trace: what was taken off its times; nil: all ranks are in this process
}

// CheckpointEvent: a checkpoint was written.
type CheckpointEvent struct {
	Step int64
	Dir  string
	Best bool
	Took time.Duration
}

// WarningEvent: something a person should know, such as a checkpoint that could not be
// written and is tried again.
type WarningEvent struct{ Text string }

// StallEvent: nothing has moved for the configured time.
type StallEvent struct {
	Quiet  time.Duration
	Status Status
}

// ChangeEvent: a change was journalled and is in effect, or will be at its step; or, with
// Err, it is none that can be made.
type ChangeEvent struct {
	Change
	// Cancelled are learning rates that were to take effect at once, in steps that were lost since:
	// the change takes their place.
	Cancelled []Change
	Err       error
}

// PauseEvent: the run paused at a step's end (or, Paused false, goes on).
type PauseEvent struct {
	Step   int64
	Paused bool
}

// RestartEvent: a process that computed ranks was lost, and the run goes on by itself.
type RestartEvent struct {
	Err     error // names the process, its ranks and what they did
	Restart int   // since the last new checkpoint
	Most    int   // restarts that cluster.max_restarts allows
}

// EndEvent is a watcher's last: how the run has ended, as Wait tells it. Who reads Run.Events finds
// the channel closed instead.
type EndEvent struct {
	Result Result
	Err    error
}
