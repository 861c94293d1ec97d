package transport

import "time"

// Limits of what others can make this process hold or do. All sizes of queues and buffers of
// the package are here.
const (
	// LimitConnections is how many connections others may have open here, whatever for, where the
	// process may have as many files open; else see filesKept.
	LimitConnections = 10_240
	// LimitConnectionsPerAddress is how many of those who have shown who they are may come from one IPv4
	// address, or from one /64 of IPv6.
	LimitConnectionsPerAddress = 256
	// LimitStrangers is how many connections may be of those who have not shown who they are: in the handshake, or to
	// join. Beyond it, and beyond LimitConnectionsPerAddress of them from one address, the oldest is closed for the
	// newest: most of those who have something to say have said it before that.
	LimitStrangers = 1_024
	// filesKept is how many of the files that the process may have open are not for connections from
	// others: checkpoints, data, connections to others. It is half of them at most. A quarter of the rest is for
	// strangers at most.
	filesKept = 512
	// LimitHandshakeTime is the time a connection has to say who it is and what it speaks.
	LimitHandshakeTime = 5 * time.Second

	// LimitControlPerPeer is how many of them may carry envelopes of one peer, known by its
	// certificate. It has one, and after a break the old one lasts a little.
	LimitControlPerPeer = 8

	// LimitEnvelopeBytes is the size of an envelope as it is encoded.
	LimitEnvelopeBytes = 4 << 20
	// LimitEnvelopeParts is how many messages may lie in one envelope, at any depth: an empty
	// one takes two bytes on the wire and a hundred in memory.
	LimitEnvelopeParts = 1 << 17
	// LimitEnvelopeDepth is how deep they may lie in each other.
	LimitEnvelopeDepth = 8
	// LimitBatch is how many envelopes one message of protoactor's carries at most.
	LimitBatch = 16
	// LimitNameBytes is the length of a name: of a process, a protocol, an actor system.
	LimitNameBytes = 64
	// LimitAddressBytes is the length of host:port.
	LimitAddressBytes = 260

	// LimitUnwrittenMessages and LimitUnwrittenBytes bound what waits to be written to one
	// address: what is sent beyond is lost. protoactor's own queue has no bound.
	LimitUnwrittenMessages = 16_384
	LimitUnwrittenBytes    = 64 << 20
	// LimitUnhandledBytes bounds what has been received and waits for Handlers.Envelope.
	// Beyond it connections are read no further.
	LimitUnhandledBytes = 64 << 20

	// LimitAttempts is how many connections are tried at a time for one that is dialled.
	LimitAttempts = 4
	// LimitConnectTime is how long an address is dialled for control before what waits for it
	// is lost. The next Send begins anew.
	LimitConnectTime = 10 * time.Second
	// LimitCloseTime is how long Close waits for handlers to return.
	LimitCloseTime = 500 * time.Millisecond

	// LimitLogLines is how many lines are logged in a second of what others did wrong; the
	// rest are counted.
	LimitLogLines = 10
)

const (
	// unhandledUnit is what LimitUnhandledBytes is counted in.
	unhandledUnit = 64 << 10
	// recvBytesMax is the size of a message of protoactor's: its largest batch is one of
	// LimitEnvelopeBytes together (outgoing.go: SendMsg), and what describes it.
	recvBytesMax = LimitEnvelopeBytes + 64<<10
	// writerQueue is the first size of protoactor's queue of an address; it grows.
	writerQueue = 1_024
	// headerBytesMax is the size of the HTTP/2 headers of a request.
	headerBytesMax = 8 << 10

	connectAgain   = 300 * time.Millisecond // until another attempt begins beside the first
	redialFirst    = 100 * time.Millisecond
	redialMax      = 500 * time.Millisecond
	redialPatience = 3 * time.Second // of one attempt: a lost SYN costs a second

	redialOld = 5 * time.Second // since a connection was dialled: it is not one that answers another's dialling

	keepaliveTime    = 5 * time.Second  // of silence, before a control connection is asked
	keepaliveTimeout = 5 * time.Second  // for its answer
	idleTime         = 15 * time.Second // of a control connection without its stream
)
