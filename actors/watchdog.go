package actors

import "time"

// watchdog reports when no actor has made progress for some time.
type watchdog struct {
	after  time.Duration // time without progress; 0: never report
	moves  func() int64  // counts progress
	paused func() bool   // a pause is no stall, however long it is
	tell   func(quiet time.Duration)
}

// run reports each stall once, until there is progress again. It ends when quit is closed.
func (w watchdog) run(quit <-chan struct{}) {
	if w.after <= 0 {
		return
	}
	tick := time.NewTicker(min(watchEvery, w.after/2+1))
	defer tick.Stop()
	last, since, told := w.moves(), time.Now(), false
	for {
		select {
		case <-quit:
			return
		case <-tick.C:
		}
		if now := w.moves(); now != last || w.paused() {
			last, since, told = now, time.Now(), false
			continue
		}
		if quiet := time.Since(since); quiet >= w.after && !told {
			told = true
			w.tell(quiet)
		}
	}
}
