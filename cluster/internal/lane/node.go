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
	ErrGone = errors.New("lane: the peer has left")
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

// Message is a message of the lane: a header, which the lane doesn't interpret, and parts.
type Message struct {
	Header []byte
	Parts  [][]byte
}

// Config says which process a node belongs to and how it reaches others.
type Config struct {
	// Self is the incarnation of this process.
	Self ID
	// Dial opens a stream to a peer at the address given to SetPeer. It must return when ctx ends.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Checksum adds checksums of header and payload to the messages that this node sends. TLS makes it unnecessary.
	Checksum bool
	// Streams is the number of connections to a peer, at most LimitStreams; 0: DefaultStreams. Messages of more than
	// LimitPiece bytes use all of them, and others the first that is free.
	Streams int
	// NoSharedMemory sends payloads over the streams even between processes on one host.
	NoSharedMemory bool
	// Logger logs why streams break; nil: no log.
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

	sleepers sleepers // sockets whose readers are asleep

	mu          sync.Mutex
	closed      bool
	groups      map[ID]*Group
	outs        map[ID]*out
	ins         map[ID]*in
	forgotten   map[ID]uint64 // the last session before Forget
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

// SetPeer sets a peer's address. If the address changes, the node redials its streams. A forgotten peer becomes known
// again, with a new session.
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

// Redial redials the streams to a peer if messages wait for it, because the streams may be broken.
func (n *Node) Redial(id ID) {
	n.mu.Lock()
	o := n.outs[id]
	n.mu.Unlock()
	if o != nil {
		o.dialAnew()
	}
}

// sessions numbers the sessions of all nodes in this process, so that a new node with the same ID
// continues the numbering.
var sessions atomic.Uint64

func (n *Node) newOutLocked(id ID) *out {
	o := newOut(n, id, sessions.Add(1))
	n.outs[id] = o
	return o
}

// out returns the sending side for a peer, or ErrGone if the peer was forgotten.
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

// Forget drops a peer. It calls the done functions of the messages queued for the peer, and of those partly received
// from it, with ErrGone as soon as no stream uses their memory. The node refuses the peer's streams until the peer begins
// a new session.
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

// Close ends all streams, calls the done functions of queued and partly received messages with ErrClosed, and waits for
// the node's goroutines.
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
