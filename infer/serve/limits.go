package serve

import "time"

// The limits of requests.
const (
	limitBodyBytes   = 4 << 20
	limitHeaderBytes = 32 << 10
	limitURLBytes    = 4 << 10
	limitStops       = 16   // texts that end an answer
	LimitTokens      = 4096 // usual limit of the tokens of an answer
	usualTokens      = 16   // of a completion without max_tokens, as the API has it
	maxTokens        = 1 << 30

	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	// slowReader is the time after which a client that reads nothing is disconnected.
	slowReader = 10 * time.Second
	// farewellTime is the time for the errors of texts that the end of a server's grace ends.
	farewellTime = 3 * time.Second
)
