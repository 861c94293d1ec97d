package main

import "time"

// The limits of requests. Troupe itself refuses runs that need more memory than the machine has.
const (
	limitBodyBytes   = 16 << 20 // a text
	limitAskBytes    = 1 << 20  // other requests
	limitHeaderBytes = 64 << 10
	limitRuns        = 64   // runs that the service keeps; it drops the oldest ended ones
	limitEvents      = 1024 // events of a run that are kept
	limitReaders     = 64   // concurrent readers of events
	limitGenerating  = 16   // concurrent generated texts
	limitTokens      = 4096 // of a generated text
	limitPromptBytes = 64 << 10

	headerTimeout   = 10 * time.Second
	bodyTimeout     = time.Minute
	idleTimeout     = 2 * time.Minute
	generateTimeout = 2 * time.Minute
	// slowReader is the time after which a reader that reads nothing is disconnected.
	slowReader = 10 * time.Second
	// usualMaxAge is the largest age of a snapshot, if the request does not give one.
	usualMaxAge = 2 * time.Second
)
