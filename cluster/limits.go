package cluster

import (
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/journal"
)

// Limits of what other processes can make this one hold or do, and of what it keeps.
const (
	// limitRequestBytes bounds a request; a config is the largest thing in it.
	limitRequestBytes = 2 << 20
	// limitReplyBytes bounds a reply: the state of every actor of a run, or a log.
	limitReplyBytes = 8 << 20
	// limitRequests is how many requests are answered at a time, and limitFollowers how many more
	// that follow a run or a log.
	limitRequests  = 64
	limitFollowers = 256
	// limitSets is how many --set values a request may have.
	limitSets = 1024
	// limitNameBytes bounds a run's name, and the text by which a request names a run.
	limitNameBytes = 256

	// limitQueue is how many runs may wait in the queue.
	limitQueue = 128
	// limitHistory is how many ended runs are listed, also after a restart of the coordinator.
	limitHistory = journal.LimitEnded
	// limitEvents is how many of a run's last events are kept for later followers.
	limitEvents = 512
	// limitEndedEvents is how many events are kept of an ended run.
	limitEndedEvents = 64
	// limitFollowerEvents is how many events may wait for a follower; a slower one is disconnected.
	limitFollowerEvents = 1024

	// limitFollowerTraces is how many traces of steps may wait for a follower; later steps come
	// without a trace.
	limitFollowerTraces = 4
	// limitBeatActions bounds the actions in a beat and their parts; the others come with the next beat.
	limitBeatActions = 1 << 14

	// limitLogQueue is how many log records may wait in a worker to be sent to the coordinator.
	limitLogQueue = 512
	// limitLogBatch is how many records go in one message, and limitLogBatchBytes its size.
	limitLogBatch      = 64
	limitLogBatchBytes = 1 << 20
)

const (
	// requestTime is how long a client may take to send its request.
	requestTime = 10 * time.Second
	// aliveEvery is how often a waiting client hears from the coordinator, and deadAfter how long a
	// silence may last before the client counts the connection as broken.
	aliveEvery = 5 * time.Second
	deadAfter  = 20 * time.Second
	// changeTime is how long a request for a change waits for the run's answer.
	changeTime = 10 * time.Second
	// limitRecordTime is the longest time that one request may record a run for.
	limitRecordTime = time.Hour
	// writeTime is how long writing a message may take.
	writeTime = 10 * time.Second
	// refollowTime is how long a client that follows a run tries to reconnect to the coordinator.
	refollowTime = 60 * time.Second
	// refollowFirst is the first pause between two tries; each is twice as long, up to
	// refollowMost.
	refollowFirst = 100 * time.Millisecond
	refollowMost  = 2 * time.Second
	// takeUpWait is how long a run that resumes waits for as many workers as it had; after that it
	// resumes with fewer.
	takeUpWait = 30 * time.Second
	// resumeMost bounds the pause between two tries to resume a run. The number of tries has no limit: only an
	// operator may drop a run that has begun.
	resumeMost = time.Minute
	// defaultGrace is how long a worker that is told to stop waits for the coordinator to release its ranks: less than
	// the 30 s that Kubernetes waits before it kills a process. drainTick is how often the worker checks. After a silence
	// of drainQuiet it assumes that the coordinator has stopped. After its stages have ended it waits for drainRelease for
	// the message that names the checkpoint.
	defaultGrace = 25 * time.Second
	drainTick    = 50 * time.Millisecond
	drainQuiet   = 2500 * time.Millisecond
	drainRelease = time.Second
	// keepWait is how long the stages of an attempt that is renewed may take to end and to be kept, after the assignment
	// of the renewed attempt has come.
	keepWait = 2 * time.Second
	// moveTime is the part of a worker's grace time in which others load its ranks' state, if it exits before the step in progress ends;
	// or, if that is less, two fifths of it.
	moveTime = 10 * time.Second
	// leaveGrace is how long a coordinator keeps a worker that was told to stop: if the coordinator is told to stop in
	// that time too, its runs can write a last checkpoint with the worker's help.
	leaveGrace = 500 * time.Millisecond
	// queueRetry is how long the first run of the queue waits before it tries again with the same free workers.
	queueRetry = time.Minute
	// rebalanceAfter is how long a worker must have been a member before a run is regrouped to use it, so that a worker
	// that restarts again and again interrupts no run. rebalanceEvery is how often a run looks for such workers.
	rebalanceAfter = 5 * time.Second
	rebalanceEvery = time.Second
	// logFlushTime is how long a worker that stops may take to send the rest of its log.
	logFlushTime = time.Second
	// logRedial is the pause before a worker reconnects to send its log.
	logRedial = time.Second
)
