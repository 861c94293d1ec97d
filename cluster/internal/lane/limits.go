package lane

import "time"

// Every queue, buffer and number that a peer names is bounded here.
const (
	// LimitHeaderBytes bounds a message's header.
	LimitHeaderBytes = 1 << 20
	// LimitParts bounds the parts of a message.
	LimitParts = 65_536
	// LimitPayloadBytes bounds the sum of a message's parts.
	LimitPayloadBytes = 1 << 40
	// LimitPending bounds the messages to one peer, from the oldest unacknowledged one to the newest.
	LimitPending = 65_536
	// LimitStreams bounds the streams to one peer.
	LimitStreams = 16
	// DefaultStreams is the default number of streams to one peer. The second one helps most on loopback and over TLS.
	DefaultStreams = 2
	// LimitPartial bounds the incomplete messages from one peer.
	LimitPartial = 256
	// LimitPiece is the size in bytes of the pieces of a longer message. It is part of the protocol.
	LimitPiece = 1 << 20
	// LimitSharedBytes bounds the memory that a stream shares with a peer on the same host: slots of LimitPiece bytes, which become
	// memory when something is sent through them.
	LimitSharedBytes = 32 * LimitPiece
	// LimitPeers bounds the peers of a node, and the forgotten peers that it remembers.
	LimitPeers = 4096
	// LimitHandshakes bounds the accepted streams whose handshake is in progress.
	LimitHandshakes = 1024

	// limitStripedMeta bounds header and lengths of a message in pieces, because each piece repeats them.
	limitStripedMeta = 16 << 10
	// limitBatchPieces and limitBatchBytes bound the pieces that a stream takes from the queue for one write.
	limitBatchPieces = 64
	limitBatchBytes  = 512 << 10
	// limitAcks bounds the numbers in one acknowledgment frame.
	limitAcks = 512

	// A receiver acknowledges at the latest after ackBytes or ackMessages, and before every wait.
	ackBytes    = 1 << 20
	ackMessages = 64

	// awake is how long a reader polls its socket before it goes to sleep. With more than limitWatched sleeping sockets
	// it does not poll.
	awake        = 100 * time.Microsecond
	limitWatched = 64

	handshakeTimeout = 5 * time.Second
	// silence is how long a peer's system may leave sent bytes unacknowledged before the stream is closed, on systems
	// that support it. After a network partition a new stream gets through sooner than the old one.
	silence     = 5 * time.Second
	redialFirst = 50 * time.Millisecond
	redialMax   = time.Second
	// closeGrace is how long Group.Close waits for a write to end before it breaks the stream, which costs the
	// other groups a resend.
	closeGrace = 50 * time.Millisecond

	readBufferBytes  = 16 << 10  // longer reads go directly into their destination
	writeBufferBytes = 16 << 10  // shorter writes are gathered, on streams without vectored writes
	wasteBytes       = 64 << 10  // buffer for discarded payload
	tileBytes        = 512 << 10 // the checksum is computed over tiles of this size while they are in the cache
)
