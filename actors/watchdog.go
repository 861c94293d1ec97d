package actors

import "time"

// watchdog tells when nothing has moved for a while.
type watchdog struct {
	after  time.Duration // of quiet; 0: it never tells
	moves  func() int64  // counts what has moved
	paused func() bool   // a pause is no stall, however long it is
	tell   func(quiet time.Duration)
}

// run tells of each stall, once until something moves again. It ends when quit is closed.
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
