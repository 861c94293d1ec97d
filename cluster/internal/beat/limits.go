package beat

import "time"

const (
	// LimitBeatBytes bounds a frame, which has the state of every actor of a worker.
	LimitBeatBytes = 4 << 20
	// beatsInSilence is how many beats fit into the silence after which a worker is removed.
	beatsInSilence = 6
	// beatMost bounds the time between two beats, however long the silence, because beats report the
	// processes that a worker can't reach.
	beatMost = time.Second
	// hangUpPart: a worker waits for a beat, or for a new stream, for the silence divided by hangUpPart.
	hangUpPart = 3
	// dialPart: a worker starts another dial after the silence divided by dialPart while earlier dials
	// continue, up to limitDials at a time. TCP retransmits only after a second, so after a short break a
	// new dial gets through sooner.
	dialPart   = 12
	limitDials = hangUpPart + 1
	// soonPart: the pause between tries is at most the silence divided by soonPart while the silence is
	// not over.
	soonPart = 30
	// helloTime is how long the greeting on a new stream may take.
	helloTime = 5 * time.Second
	// ReachTime is how much of helloTime the coordinator may use to check that it reaches the worker.
	ReachTime = 3 * time.Second
	// probeEvery is how often the coordinator dials a worker whose stream broke. After as many refused
	// connections in a row as refusals says, the worker's process has exited.
	probeEvery = 50 * time.Millisecond
	refusals   = 3
	// goodbyeTime is how long a leaving worker waits for the coordinator to close the stream.
	goodbyeTime = 500 * time.Millisecond
	// redialFirst is the first pause before a redial. Each pause is twice as long as the one before,
	// up to redialMost.
	redialFirst = 50 * time.Millisecond
	redialMost  = time.Second
	// clockBeats is how many of the last beats the clock offset is chosen from.
	clockBeats = 32
	// clockDrift is how far two clocks may drift apart during these beats, which take at most
	// clockBeats × beatMost: more than 1,000 parts per million.
	clockDrift = 50 * time.Millisecond
	// sentBeats is how many of the last beats have their send times kept.
	sentBeats = 16
	// limitGone is how many removed incarnations are remembered.
	limitGone = 4096
)

// beatEvery returns the time between two beats.
func beatEvery(silence time.Duration) time.Duration { return min(silence/beatsInSilence, beatMost) }
