package control

import "time"

// The limits of a run's socket.
const (
	// LimitClients is the largest number of clients of a run at a time. Further ones are told to try again.
	LimitClients = 16
	// limitRequestBytes is the longest line of a client.
	limitRequestBytes = 4 << 10
	// limitAnswerBytes is the longest line of a run: the status of some ten thousand actors.
	limitAnswerBytes = 16 << 20
	// limitPathBytes is the longest path of a socket: the shortest limit of a system, with a margin.
	limitPathBytes = 100

	idleTime   = time.Minute            // without a request, after which a client is disconnected
	writeTime  = 10 * time.Second       // to send a line
	dialTime   = 2 * time.Second        // to connect
	answerTime = 10 * time.Second       // until the answer to a request
	changeTime = 2 * time.Second        // until the run has accepted or refused a change; it may be between two attempts
	endTime    = time.Second            // that the end of a run waits for its clients to read the last event
	acceptTime = 100 * time.Millisecond // between two tries to accept a client, if the system refuses
)
