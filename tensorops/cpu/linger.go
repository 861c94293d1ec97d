package cpu

import (
	"runtime"
	"sync/atomic"
	"time"
)

// lingerTime is how long what waits stays awake: about what it costs to wake a
// sleeping thread on a machine that has gone idle.
const lingerTime = 100 * time.Microsecond

// looksBetween is how often linger looks before it lets others run.
const looksBetween = 50

// linger waits until something holds, and reports whether it does, or gives up after
// lingerTime. Every few microseconds it lets the goroutines run that have something to do, so
// that it takes a processor from nobody.
func linger(holds func() bool) bool {
	for end := time.Now().Add(lingerTime); ; runtime.Gosched() {
		for range looksBetween {
			if holds() {
				return true
			}
			spin()
		}
		if !time.Now().Before(end) {
			return false
		}
	}
}

var spinSink atomic.Int32

// spin passes some thirty nanoseconds without a system call.
func spin() {
	for range 20 {
		spinSink.Load()
	}
}
