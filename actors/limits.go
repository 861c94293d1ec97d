package actors

import "time"

// The limits of this package's queues. The credits of the table limit what is in flight between
// stages.
const (
	// limitDataAhead is the number of microbatches of tokens and targets that a stage requests
	// ahead of their forward, for each chunk that reads any.
	limitDataAhead = 4
	// limitSaves is the number of checkpoints in progress: one is written while training continues.
	limitSaves = 1
	// LimitRecords is the number of steps that may wait for their line in metrics.jsonl, or for
	// their event, before training waits.
	LimitRecords = 1024
	// limitReads is the number of requests for a rank's state that wait: each rank that needs it has some at a time (plan.Loading).
	limitReads = 256
	// limitShadowSteps is the number of steps whose gradients a shadow holds: one that is computed while the one before is being applied.
	limitShadowSteps = 2
	// limitShadowReads is the number of tensors for which a shadow without a state asks at a time.
	limitShadowReads = 8
	// gradientBytes is the size above which the gradients for a shadow are sent in several messages, so that other messages get between
	// them.
	gradientBytes = 4 << 20
	// saveAgainFirst is the pause after a failed write of a checkpoint, for a reason that may pass,
	// before the next attempt. Each pause is twice as long, up to saveAgainMost. Training continues
	// meanwhile.
	saveAgainFirst = 200 * time.Millisecond
	saveAgainMost  = time.Minute
	// LimitLastSaves is the number of attempts to write a run's last checkpoint.
	LimitLastSaves = 6
	// LimitWrites is the number of attempts to write a line of a run's files after the run was
	// asked to stop, with the same pauses.
	LimitWrites = 6
	// experienceSteps is the number of last steps that decide between applying an update
	// speculatively and waiting for it.
	experienceSteps = 8
	// throughput is the number of messages that a stage takes in a row before it lets other
	// goroutines run.
	throughput = 300
	// watchEvery is the interval at which the watchdog checks for progress.
	watchEvery = 200 * time.Millisecond
)
