package actors

import "time"

// watchdog reports when no actor has made progress for some time.
type watchdog struct {
	after  time.Duration // time without progress; 0: never report
	moves  func() int64  // counts progress
	paused func() bool   // a pause is no stall, however long it is
	tell   func(quiet time.Duration)
}

// run reports each stall once, until there is progress again. Time in which this process was frozen does not count. It
// ends when quit is closed.
func (w watchdog) run(quit <-chan struct{}) {
	if w.after <= 0 {
		return
	}
	every := min(watchEvery, w.after/2+1)
	tick := time.NewTicker(every)
	defer tick.Stop()
	last, looked, quiet, told := w.moves(), time.Now(), time.Duration(0), false
	for {
		select {
		case <-quit:
			return
		case <-tick.C:
		}
		since := time.Since(looked)
		looked = time.Now()
		if now := w.moves(); now != last || w.paused() {
			last, quiet, told = now, 0, false
			continue
		}
		if quiet += min(since, 2*every); quiet >= w.after && !told {
			told = true
			w.tell(quiet)
		}
	}
}
