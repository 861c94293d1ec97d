package event

import (
	"time"

	"github.com/troupe-ml/troupe/telemetry"
)

// Event is something that happened in a run: one of the types below.
type Event = any

// StepEvent reports a finished step. Step 0 is the validation before training.
type StepEvent struct {
	telemetry.Record
	IdealBubblePct float64        // bubble of the schedule's table if all actions of a kind take equally long
	Trace          [][]ActionTime // actions by rank, in times of this process's clock; nil: the step was not recorded
	Clocks         []Clock        // by rank: the clock offsets that Trace is corrected by; nil: all ranks are in this process
}

// CheckpointEvent reports a checkpoint that was written.
type CheckpointEvent struct {
	Step int64
	Dir  string
	Best bool
	Took time.Duration
}

// WarningEvent reports a problem that the run survives, such as a failed write of a checkpoint, which the run tries
// again.
type WarningEvent struct{ Text string }

// StallEvent reports that the run has made no progress for run.stall_after_s.
type StallEvent struct {
	Quiet  time.Duration
	Status Status
}

// ChangeEvent reports that the run accepted a change, which is in effect or will be after its step. With Err the run
// refused it.
type ChangeEvent struct {
	Change
	// Learning rates that the change replaces: they were to take effect at once, in steps that the run has lost since.
	Cancelled []Change
	Err       error
}

// PauseEvent reports that the run paused after a step or, if Paused is false, resumed.
type PauseEvent struct {
	Step   int64
	Paused bool
}

// RestartEvent reports that a process that computed ranks failed. The run restarts from its last checkpoint.
type RestartEvent struct {
	Err     error // names the process, its ranks and what they were doing
	Restart int   // number of this restart since the last new checkpoint
	Most    int   // the limit, cluster.max_restarts
}

// EndEvent is a watcher's last event: the result of the run, as Run.Wait returns it. A reader of Run.Events finds the
// channel closed instead.
type EndEvent struct {
	Result Result
	Err    error
}
