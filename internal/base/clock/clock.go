// Package clock is the wall clock: the time that people read, that certificates are valid at, and
// that leaves the process. It may be set at any moment, so do not use it for durations or for
// order. Use time.Now, whose monotonic reading is never set, or numbers.
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
// were, to some microseconds, even if the clock was set between them.
func At(t time.Time) time.Time {
	now := time.Now()
	return now.Round(0).Add(time.Duration(stepped.Load())).Add(t.Sub(now))
}

// Step sets the clock of this process forward, or back, as if the host's clock had been set. It is
// for tests.
func Step(by time.Duration) { stepped.Add(int64(by)) }
