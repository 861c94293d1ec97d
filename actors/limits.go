package actors

import "time"

// The bounds of this package's queues. What is in flight between stages is
// bounded by the table's credits.
const (
	// LimitDataAhead is how many microbatches of tokens and targets a stage asks for ahead
	// of their forward, for each chunk that takes any.
	LimitDataAhead = 4
	// LimitSaves is how many checkpoints may be in progress: one is written
	// while training goes on.
	LimitSaves = 1
	// LimitRecords is how many steps may wait for their line in metrics.jsonl, or
	// for their event, before training waits for them.
	LimitRecords = 1024
	// experienceSteps is how many of the last steps decide between applying an update
	// speculatively and waiting for it.
	experienceSteps = 8
	// throughput is how many messages a stage takes in a row before it lets other
	// goroutines run.
	throughput = 300
	// watchEvery is how often the watchdog looks for progress.
	watchEvery = 200 * time.Millisecond
)
