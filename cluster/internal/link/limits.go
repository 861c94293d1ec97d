package link

import "time"

const (
	// LimitUnacknowledged bounds the unacknowledged messages to a peer. A run has some tens for each
	// stage at a time.
	LimitUnacknowledged = 1 << 16
	// resendWindow is how many of them are resent at a time.
	resendWindow = 256
	// ackEvery is the number of messages that are acknowledged at once; fewer are acknowledged after
	// ackAfter.
	ackEvery = 32
	ackAfter = 10 * time.Millisecond
	// resendFirst is how long a message may stay unacknowledged before it is resent. The time doubles
	// at each resend, up to resendMost.
	resendFirst = 200 * time.Millisecond
	resendMost  = 2 * time.Second
	// redialFirst is how long a process that sends messages may acknowledge nothing before the
	// connection to it is redialed. The time doubles at each redial.
	redialFirst = time.Second
)
