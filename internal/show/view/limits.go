package view

import "time"

const (
	// maxSpans bounds what is kept of each rank for its strip.
	maxSpans = 2048
	// maxPoints bounds the points of a curve: twice as many columns as any terminal has.
	maxPoints = 2048
	// The time that a strip shows.
	leastStrip = 20 * time.Millisecond
	mostStrip  = time.Minute
	// stale is how old the end of a strip may be.
	stale = time.Second
	// maxChain bounds the lines of a chain of waits.
	maxChain = 6
)

// The least size of a terminal that a view is drawn in.
const (
	LeastColumns = 40
	LeastRows    = 12
)
