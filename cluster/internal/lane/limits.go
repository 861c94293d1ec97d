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
	// LimitPending bounds the messages to one peer, from the oldest that isn't acknowledged to the newest.
	LimitPending = 65_536
	// LimitStreams bounds the streams to one peer.
	LimitStreams = 16
	// DefaultStreams is how many there are if nobody says: the second gains most on loopback and over TLS.
	DefaultStreams = 2
	// LimitPartial bounds the messages from one peer that have come in part.
	LimitPartial = 256
	// LimitPiece is the size of the pieces of a message that is longer. It is part of the protocol.
	LimitPiece = 1 << 20
	// LimitPeers bounds the peers that may have sent to a node, and the forgotten ones it remembers.
	LimitPeers = 4096
	// LimitHandshakes bounds the accepted streams that haven't said yet who they are.
	LimitHandshakes = 1024

	// limitStripedMeta bounds header and lengths of a message that is cut into pieces: each piece repeats them.
	limitStripedMeta = 16 << 10
	// limitBatchPieces and limitBatchBytes bound what a stream takes from the queue for one write.
	limitBatchPieces = 64
	limitBatchBytes  = 512 << 10
	// limitAcks bounds the numbers in one frame of acknowledgements.
	limitAcks = 512

	// ackBytes and ackMessages are after how much a receiver acknowledges at the latest; it does before every wait.
	ackBytes    = 1 << 20
	ackMessages = 64

	// awake is how long a reader watches its socket before it goes to sleep, and limitWatched bounds the sockets that
	// it watches: with more asleep it does not.
	awake        = 100 * time.Microsecond
	limitWatched = 64

	handshakeTimeout = 5 * time.Second
	// silence is how long a peer's system may leave sent bytes unacknowledged before the stream is given up, where
	// the system can say. A new stream gets through sooner after a partition than the old one.
	silence     = 5 * time.Second
	redialFirst = 50 * time.Millisecond
	redialMax   = time.Second
	// closeGrace is how long Group.Close lets a write end by itself before it breaks the stream: a broken
	// stream costs the other groups a resend.
	closeGrace = 50 * time.Millisecond

	readBufferBytes  = 16 << 10  // more than that is read straight into its place
	writeBufferBytes = 16 << 10  // where a stream has no vectored write, less than that is gathered
	wasteBytes       = 64 << 10  // what is thrown away is read into this much
	tileBytes        = 512 << 10 // the checksum is computed over this much at a time, while it is in the cache
)
