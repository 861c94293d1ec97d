package lane

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Errors that done functions are called with.
var (
	// ErrGone: the peer was forgotten.
	ErrGone = errors.New("lane: the peer is gone")
	// ErrClosed: the group or the node was closed.
	ErrClosed = errors.New("lane: closed")
	// ErrFull: LimitPending messages to the peer aren't acknowledged yet.
	ErrFull = errors.New("lane: too many messages are pending")
	// ErrTooLarge: the message exceeds a limit.
	ErrTooLarge = errors.New("lane: message too large")
	// ErrWithdrawn: the sender closed the message's group before it had sent all of it.
	ErrWithdrawn = errors.New("lane: withdrawn by the sender")
)

// ID is the incarnation of a process, or a group.
type ID [16]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Message is what moves: bytes that the lane doesn't look into, and parts behind them.
type Message struct {
	Header []byte
	Parts  [][]byte
}

// Config says who a node is and how it reaches others.
type Config struct {
	// Self is the incarnation of this process.
	Self ID
	// Dial opens a stream to a peer; address is what SetPeer was told. It must end when ctx does.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Checksum adds checksums of header and payload to what this node sends. Not needed over TLS.
	Checksum bool
	// Streams is the number of connections to a peer, at most LimitStreams; 0 means DefaultStreams. Messages of more
	// than LimitPiece bytes use all of them, others the first that is free.
	Streams int
	// NoSharedMemory keeps payloads on the streams between processes of one host as well.
	NoSharedMemory bool
	// Logger is told why streams end; nil discards it.
	Logger *slog.Logger
}

// Node is this process's end of the lane.
type Node struct {
	config Config
	log    *ratedLog
	pool   outPool
	// Tests shorten these.
	redialFirst, handshakeTimeout time.Duration

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // goroutines of streams, and Accept

	sleepers sleepers // readers of sockets that wait

	mu          sync.Mutex
	closed      bool
	groups      map[ID]*Group
	outs        map[ID]*out
	ins         map[ID]*in
	forgotten   map[ID]uint64 // the session that was the last before Forget
	forgotOrder []ID          // the oldest first
	handshakes  map[net.Conn]struct{}
}

// New returns a node without peers. Close ends it.
func New(config Config) *Node {
	if config.Streams <= 0 {
		config.Streams = DefaultStreams
	}
	config.Streams = min(config.Streams, LimitStreams)
	n := &Node{
		config:           config,
		log:              newRatedLog(config.Logger),
		redialFirst:      redialFirst,
		handshakeTimeout: handshakeTimeout,
		groups:           make(map[ID]*Group),
		outs:             make(map[ID]*out),
		ins:              make(map[ID]*in),
		forgotten:        make(map[ID]uint64),
		handshakes:       make(map[net.Conn]struct{}),
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// SetPeer says where a peer is reached. With another address than before, streams are dialled anew. A peer that was
// forgotten is known again, with a numbering of its own.
func (n *Node) SetPeer(id ID, address string) {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return
	}
	o := n.outs[id]
	if o == nil {
		o = n.newOutLocked(id)
	}
	n.mu.Unlock()
	o.setAddress(address)
}

// Redial dials the streams to a peer anew that have something to carry: they may be broken.
func (n *Node) Redial(id ID) {
	n.mu.Lock()
	o := n.outs[id]
	n.mu.Unlock()
	if o != nil {
		o.dialAnew()
	}
}

// sessions numbers those of all nodes of this process: a node that is made again under the same ID
// numbers its sessions on.
var sessions atomic.Uint64

func (n *Node) newOutLocked(id ID) *out {
	o := newOut(n, id, sessions.Add(1))
	n.outs[id] = o
	return o
}

// out returns what is sent to a peer: nil if the peer is gone.
func (n *Node) out(id ID) (*out, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, ErrClosed
	}
	if o := n.outs[id]; o != nil {
		return o, nil
	}
	if _, gone := n.forgotten[id]; gone || len(n.outs) >= LimitPeers {
		return nil, ErrGone
	}
	return n.newOutLocked(id), nil
}

// Forget drops a peer: the done functions of what is queued for it, and of what has come of its messages in part, are
// called with ErrGone, as soon as no stream uses the memory. The peer's streams are refused until it begins a
// new session.
func (n *Node) Forget(id ID) {
	n.mu.Lock()
	o, i := n.outs[id], n.ins[id]
	delete(n.outs, id)
	delete(n.ins, id)
	session := n.forgotten[id]
	if i != nil {
		session = max(session, i.session)
	}
	if _, known := n.forgotten[id]; !known {
		n.forgotOrder = append(n.forgotOrder, id)
	}
	n.forgotten[id] = session
	for len(n.forgotOrder) > LimitPeers {
		delete(n.forgotten, n.forgotOrder[0])
		n.forgotOrder = n.forgotOrder[1:]
	}
	n.mu.Unlock()
	if o != nil {
		o.end(ErrGone)
	}
	if i != nil {
		i.end(ErrGone)
	}
}

// Close ends all streams, calls the done functions of all that is queued or half received with ErrClosed, and waits
// for the node's goroutines.
func (n *Node) Close() {
	n.mu.Lock()
	n.closed = true
	outs, ins, groups := n.outs, n.ins, n.groups
	n.outs, n.ins, n.groups = nil, nil, nil
	for conn := range n.handshakes {
		abort(conn)
	}
	n.mu.Unlock()
	n.cancel()
	for _, o := range outs {
		o.end(ErrClosed)
	}
	for _, i := range ins {
		i.end(ErrClosed)
	}
	for _, g := range groups {
		g.Close()
	}
	n.wg.Wait()
}
