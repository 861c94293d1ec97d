package troupe

import "time"

// The bounds of this package's queues, and of what it holds for others.
const (
	// LimitEvents bounds the events that wait for a reader of Run.Events, and those that a
	// watcher has not taken yet. When it is reached, step events are dropped and counted; the
	// run doesn't wait.
	LimitEvents = 1024
	// LimitRequests bounds the changes that were asked of a run and are not done yet. At the limit a
	// change that names a step, or a learning rate, is refused.
	LimitRequests = 1000
	// LimitSnapshots is how many snapshots of a run, each with all weights of the model, may be
	// there at a time. Those who share one count once.
	LimitSnapshots = 4
	// limitTraces is how many traces of steps may wait for a reader of events, who asked for none of
	// them by the configuration: step events behind them come without.
	limitTraces = 8
	// limitMarks is how many marks wait for a run's folder to be open.
	limitMarks = 256
	// idleSnapshot is how long the newest snapshot of a run stays for the next one who wants
	// one, when nobody uses it.
	idleSnapshot = 10 * time.Second
	// touchEvery is after how many step events a watcher is asked whether it has taken them.
	touchEvery = 64
	// endPatience is how long the end of a run waits for its actor to tell the watchers.
	endPatience = 5 * time.Second
)
