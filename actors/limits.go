package actors

import "time"

// The bounds of this package's queues. What is in flight between stages is
// bounded by the table's credits.
const (
	// limitDataAhead is how many microbatches of tokens and targets a stage asks for ahead
	// of their forward, for each chunk that takes any.
	limitDataAhead = 4
	// limitSaves is how many checkpoints may be in progress: one is written
	// while training goes on.
	limitSaves = 1
	// LimitRecords is how many steps may wait for their line in metrics.jsonl, or
	// for their event, before training waits for them.
	LimitRecords = 1024
	// saveAgainFirst is the pause after a checkpoint that could not be written, for a reason that may
	// pass, before another one is written; each is twice as long, up to saveAgainMost. Training
	// continues meanwhile.
	saveAgainFirst = 200 * time.Millisecond
	saveAgainMost  = time.Minute
	// LimitLastSaves is how often the checkpoint with which a run ends is tried.
	LimitLastSaves = 6
	// LimitWrites is how often a line of a run's files is tried to be written when the run was asked to stop, with the same
	// pauses.
	LimitWrites = 6
	// experienceSteps is how many of the last steps decide between applying an update
	// speculatively and waiting for it.
	experienceSteps = 8
	// throughput is how many messages a stage takes in a row before it lets other
	// goroutines run.
	throughput = 300
	// watchEvery is how often the watchdog looks for progress.
	watchEvery = 200 * time.Millisecond
)
