package link

import "time"

const (
	// LimitUnacknowledged bounds the messages to a peer that it has not acknowledged.
	// A run has some tens for each stage at once.
	LimitUnacknowledged = 1 << 16
	// resendWindow is how many of them are sent again at a time.
	resendWindow = 256
	// ackEvery is after how many messages a peer is told at once that they came; with
	// fewer it is told after ackAfter.
	ackEvery = 32
	ackAfter = 10 * time.Millisecond
	// resendFirst is how long a message may be without acknowledgement before it is sent
	// again; each time it is twice as long, up to resendMost.
	resendFirst = 200 * time.Millisecond
	resendMost  = 2 * time.Second
	// redialFirst is how long nothing may be acknowledged by a process that is heard, until the
	// connection to it is dialled again; each time it must be twice as long.
	redialFirst = time.Second
)
