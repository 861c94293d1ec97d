package transport

import "time"

// Limits of what other processes can make this one hold or do. All sizes of the package's queues and
// buffers are here.
const (
	// LimitConnections is how many connections other processes may have open here, of all protocols.
	// If the process may have fewer files open, filesKept applies.
	LimitConnections = 10_240
	// LimitConnectionsPerAddress is how many connections of identified processes may come from one IPv4
	// address, or from one IPv6 /64.
	LimitConnectionsPerAddress = 256
	// LimitStrangers is how many connections of strangers may be open: of processes in the handshake, or that
	// join. Beyond it, or beyond LimitConnectionsPerAddress strangers from one address, a new connection closes
	// the oldest, which has most likely sent already what it has to send.
	LimitStrangers = 1_024
	// filesKept is how many of the process's open files are reserved for other uses: checkpoints, data, and
	// connections to other processes. At most half of the files are reserved. Strangers get at most a quarter of the
	// rest.
	filesKept = 512
	// LimitHandshakeTime bounds the time in which a connection must identify itself and its protocol.
	LimitHandshakeTime = 5 * time.Second

	// LimitControlPerPeer is how many connections may carry the envelopes of one peer, identified by
	// its certificate. It needs one; after a break the old one may still be open for a while.
	LimitControlPerPeer = 8

	// LimitEnvelopeBytes bounds the size of an encoded envelope.
	LimitEnvelopeBytes = 4 << 20
	// LimitEnvelopeParts bounds the messages nested in one envelope, at any depth: an empty one takes
	// two bytes on the wire and a hundred in memory.
	LimitEnvelopeParts = 1 << 17
	// LimitEnvelopeDepth bounds how deep they are nested.
	LimitEnvelopeDepth = 8
	// LimitBatch bounds the envelopes in one message of protoactor.
	LimitBatch = 16
	// LimitNameBytes bounds the length of a name: of a process, a protocol, an actor system.
	LimitNameBytes = 64
	// LimitAddressBytes bounds the length of host:port.
	LimitAddressBytes = 260

	// LimitUnwrittenMessages and LimitUnwrittenBytes bound the messages that wait to be written to
	// one address; more are lost. protoactor's own queue is unbounded.
	LimitUnwrittenMessages = 16_384
	LimitUnwrittenBytes    = 64 << 20
	// LimitUnhandledBytes bounds the received messages that wait for Handlers.Envelope. Beyond it,
	// reading from connections pauses.
	LimitUnhandledBytes = 64 << 20

	// LimitAttempts is how many connections are tried in parallel for one dial.
	LimitAttempts = 4
	// LimitConnectTime is how long an address is dialed for control before the messages that wait for
	// it are lost. The next Send dials again.
	LimitConnectTime = 10 * time.Second
	// LimitCloseTime is how long Close waits for handlers to return.
	LimitCloseTime = 500 * time.Millisecond

	// LimitLogLines bounds the log lines per second about errors of other processes; the rest are
	// counted.
	LimitLogLines = 10
)

const (
	// unhandledUnit is the unit in which LimitUnhandledBytes is counted.
	unhandledUnit = 64 << 10
	// recvBytesMax bounds a message of protoactor: its largest batch has LimitEnvelopeBytes in
	// total (see split) and some bytes that describe it.
	recvBytesMax = LimitEnvelopeBytes + 64<<10
	// writerQueue is the initial size of protoactor's queue for an address; it grows.
	writerQueue = 1_024
	// headerBytesMax bounds the HTTP/2 headers of a request.
	headerBytesMax = 8 << 10

	connectAgain   = 300 * time.Millisecond // until a second try begins in parallel
	redialFirst    = 100 * time.Millisecond
	redialMax      = 500 * time.Millisecond
	redialPatience = 3 * time.Second // for one try: a lost SYN costs a second

	// followTime is how long a stream that has ended waits for a newer one to the same address, if protoactor may be about to make it.
	followTime = time.Second

	redialOld = 5 * time.Second // age from which a connection was not dialed in answer to the other side's dial

	keepaliveTime    = 5 * time.Second  // silence before a control connection is pinged
	keepaliveTimeout = 5 * time.Second  // for the answer to the ping
	idleTime         = 15 * time.Second // for a control connection without a stream
)
