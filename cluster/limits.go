package cluster

import (
	"time"
)

// Limits of what others can make this process hold or do, and of what it keeps.
const (
	// limitRequestBytes bounds a request: a configuration is the largest thing in it.
	limitRequestBytes = 2 << 20
	// limitReplyBytes bounds an answer: the state of every actor of a run, or a log.
	limitReplyBytes = 8 << 20
	// limitRequests is how many requests are answered at a time, and limitFollowers how many
	// more that go on and on.
	limitRequests  = 64
	limitFollowers = 256
	// limitSets is how many --set values a request may have.
	limitSets = 1024
	// limitNameBytes bounds a run's name, and what a request names a run by.
	limitNameBytes = 256

	// limitHistory is how many runs that have ended are listed.
	limitHistory = 64
	// limitEvents is how many of a run's last events are kept for those who follow later.
	limitEvents = 512
	// limitEndedEvents is how many of them are kept of a run that has ended.
	limitEndedEvents = 64
	// limitFollowerEvents is how many events may wait for a follower; one that is slower is cut
	// off.
	limitFollowerEvents = 1024

	// limitFollowerTraces is how many traces of steps may wait for a follower: the steps behind come
	// without.
	limitFollowerTraces = 4
	// limitBeatActions bounds the actions that come with a beat; the others come with the next.
	limitBeatActions = 1 << 14

	// limitLogQueue is how many records may wait in a worker for their way to the coordinator.
	limitLogQueue = 512
	// limitLogBatch is how many records go in one message, and limitLogBatchBytes its size.
	limitLogBatch      = 64
	limitLogBatchBytes = 1 << 20
)

const (
	// requestTime is how long a client may take to say what it asks for.
	requestTime = 10 * time.Second
	// aliveEvery is how often a client that waits hears that the coordinator lives, and
	// deadAfter when it gives that up.
	aliveEvery = 5 * time.Second
	deadAfter  = 20 * time.Second
	// changeTime is how long a run may take to answer a change.
	changeTime = 10 * time.Second
	// limitRecordTime is the longest time for which one request has a run recorded.
	limitRecordTime = time.Hour
	// writeTime is how long an answer may take to be written.
	writeTime = 10 * time.Second
	// refollowTime is for how long a client that follows a run tries to reach a coordinator
	// that it has lost.
	refollowTime = 60 * time.Second
	// refollowFirst is the first pause between two tries; each is twice as long, up to
	// refollowMost.
	refollowFirst = 100 * time.Millisecond
	refollowMost  = 2 * time.Second
	// takeUpWait is how long a run that is taken up waits for as many workers as it had; with
	// fewer it goes on from then on.
	takeUpWait = 30 * time.Second
	// resumeMost bounds the pause between two tries to resume a run. There is no limit to their number: a run that
	// had begun is dropped by nobody but an operator.
	resumeMost = time.Minute
	// drainTime is how long a worker that is told to end waits for its coordinator to release its ranks, drainTick how
	// often it looks, and drainQuiet after which silence the coordinator counts as ended.
	drainTime  = 20 * time.Second
	drainTick  = 50 * time.Millisecond
	drainQuiet = 2500 * time.Millisecond
	// leaveGrace is how long a coordinator waits, after one of its workers was told to end, whether it is told so too.
	leaveGrace = 500 * time.Millisecond
	// logFlushTime is how long a worker that ends may take to send the rest of its log.
	logFlushTime = time.Second
	// logRedial is the pause before a worker dials again to send its log.
	logRedial = time.Second
)
