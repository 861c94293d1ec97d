// Package clock is the wall clock: the time that people read, that certificates are valid at, and
// that leaves the process. Somebody may set it at any moment, so it is good for neither durations
// nor order: for those there are time.Now, whose monotonic reading nobody sets, and numbers.
//
// It imports nothing of the project. A test sets the clock of its own process with Step.
package clock

import (
	"sync/atomic"
	"time"
)

var stepped atomic.Int64 // by which a test has set the clock, in ns

// Now is the time of the wall clock. It has no monotonic reading: the difference of two such
// times is not how much time has passed.
func Now() time.Time { return time.Now().Round(0).Add(time.Duration(stepped.Load())) }

// At is the time of a moment that this process has noted with time.Now, as the wall clock is set
// now: the present time less the moment's age. Two such times are as far apart as the moments
// were, also where somebody has set the clock between them.
func At(t time.Time) time.Time {
	now := time.Now()
	return now.Round(0).Add(time.Duration(stepped.Load())).Add(t.Sub(now))
}

// Step sets the clock of this process forward, or back, as if somebody had set the host's. It is
// for tests.
func Step(by time.Duration) { stepped.Add(int64(by)) }
