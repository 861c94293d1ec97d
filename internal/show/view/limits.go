package view

import "time"

const (
	// maxSpans bounds the actions that are kept for each rank.
	maxSpans = 2048
	// maxPoints bounds the points of a curve: more than twice the columns of a terminal.
	maxPoints = 2048
	// The bounds of the time that a timeline shows.
	leastStrip = 20 * time.Millisecond
	mostStrip  = time.Minute
	// stale is the age from which the end of a timeline moves to the present.
	stale = time.Second
	// maxChain bounds the lines of a chain of waits.
	maxChain = 6
)

// The smallest terminal for a view.
const (
	LeastColumns = 40
	LeastRows    = 12
)
