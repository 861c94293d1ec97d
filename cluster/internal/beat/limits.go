package beat

import "time"

const (
	// LimitBeatBytes bounds a frame: the state of every actor of a worker is in it.
	LimitBeatBytes = 4 << 20
	// beatsInSilence is how many beats fit into the silence after which a process is gone.
	beatsInSilence = 6
	// beatMost bounds the time between two beats, however long the silence: with them a worker
	// says what it can't reach.
	beatMost = time.Second
	// hangUpPart is which part of the silence a worker waits for a beat before it dials again,
	// and how long that may take.
	hangUpPart = 3
	// dialPart is after which part of the silence it is dialled once more beside an attempt that
	// goes on, at most limitDials at a time. TCP sends again what a broken network has lost only
	// after a second: behind a short break a new attempt gets through sooner.
	dialPart   = 12
	limitDials = hangUpPart + 1
	// soonPart bounds the pause between attempts while the silence may not be over.
	soonPart = 30
	// helloTime is how long a new stream may take to say whose it is.
	helloTime = 5 * time.Second
	// ReachTime is how much of that finding out may take whether the coordinator reaches the worker too.
	ReachTime = 3 * time.Second
	// probeEvery is how often an address is tried whose stream broke, and refusals how many
	// refused connections in a row say that the process is dead.
	probeEvery = 50 * time.Millisecond
	refusals   = 3
	// goodbyeTime is how long a worker that leaves waits for the coordinator to hang up.
	goodbyeTime = 500 * time.Millisecond
	// redialFirst is the pause before a stream is dialled again; each is twice as long, up
	// to redialMost.
	redialFirst = 50 * time.Millisecond
	redialMost  = time.Second
	// clockBeats is how many of the last beats the clock's offset is chosen from.
	clockBeats = 32
	// clockDrift is by how much two clocks may drift apart during these beats, which take clockBeats
	// times beatMost at most: more than 1,000 parts in a million.
	clockDrift = 50 * time.Millisecond
	// sentBeats is how many of the last beats are known by when they were sent.
	sentBeats = 16
	// limitGone is how many incarnations that are gone are remembered.
	limitGone = 4096
)

// beatEvery is the time between two beats.
func beatEvery(silence time.Duration) time.Duration { return min(silence/beatsInSilence, beatMost) }
