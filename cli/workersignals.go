package cli

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// secondSignal is the time after which another signal is a second request to stop: a terminal and a supervisor may both
// send the first one.
const secondSignal = time.Second

// leavesOn makes a worker leave at the first SIGINT or SIGTERM, by calling leave. The returned channel is closed at a second
// one, more than secondSignal later: then the worker leaves at once.
func (a *app) leavesOn(leave func()) (atOnce <-chan struct{}, stop func()) {
	signals, now := make(chan os.Signal, 8), make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() { // ends with stop
		var first time.Time
		for {
			select {
			case <-signals:
			case <-ended:
				return
			}
			switch {
			case first.IsZero():
				first = time.Now()
				leave()
			case time.Since(first) > secondSignal:
				close(now)
				return
			}
		}
	}()
	return now, func() {
		signal.Stop(signals)
		close(ended)
	}
}
