package main

import "time"

// The bounds of what requests may take. A run that is larger than the machine is refused by
// Troupe itself.
const (
	limitBodyBytes   = 16 << 20 // of a text
	limitAskBytes    = 1 << 20  // of any other request
	limitHeaderBytes = 64 << 10
	limitRuns        = 64   // that the service remembers; the oldest that have ended are forgotten
	limitEvents      = 1024 // of a run that are kept for readers
	limitReaders     = 64   // of events, at a time
	limitGenerating  = 16   // at a time
	limitTokens      = 4096 // of an answer
	limitPromptBytes = 64 << 10

	headerTimeout   = 10 * time.Second
	bodyTimeout     = time.Minute
	idleTimeout     = 2 * time.Minute
	generateTimeout = 2 * time.Minute
	// A reader who takes nothing for so long is cut off.
	slowReader = 10 * time.Second
	// A snapshot as old as that serves a request that does not say otherwise.
	usualMaxAge = 2 * time.Second
)
