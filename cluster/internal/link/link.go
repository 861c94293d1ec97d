package link

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/internal/wire"
)

// ID is the incarnation of a process.
type ID = uuid.UUID

// Errors of Post.
var (
	ErrUnknown = errors.New("unknown process")
	ErrFull    = errors.New("too many messages wait for acknowledgement")
)

// Config configures a Node.
type Config struct {
	Self ID
	Name string // of this process, for every envelope
	// Send sends an envelope to an address, or loses it. It must not block for long, change the
	// envelope, or call the node.
	Send func(address string, e *wire.Envelope)
	// Redial drops the connection to a process, so that later messages use a new one. It has the same
	// restrictions as Send. It may be nil.
	Redial func(id ID, address string)
	// Deliver is called once for each message, one at a time for each peer.
	Deliver func(from ID, e *wire.Envelope)
}

// Node is a process's end of its links.
type Node struct {
	cfg Config

	mu     sync.Mutex
	peers  map[ID]*peer
	timer  *time.Timer // of the next acknowledgment or resend; nil: nothing is pending
	due    time.Time   // when it fires
	closed bool
}

// New makes a node. Close ends it.
func New(cfg Config) *Node { return &Node{cfg: cfg, peers: make(map[ID]*peer)} }

// peer is the state of the link to a process. Its fields, except order, are guarded by Node.mu.
type peer struct {
	id      ID
	address string
	session uint64 // of this node's numbers for the peer; a new one each time the peer becomes known
	theirs  uint64 // session of the peer's numbers for this node; 0: not known yet

	// Sending:
	last    uint64           // number of the last posted message
	waiting []*wire.Envelope // unacknowledged, in order
	again   time.Time        // when they are resent; zero: none waits
	stuck   time.Time        // since when none of them was acknowledged
	pause   time.Duration    // until the resend after the next
	patient time.Duration    // how long they must be stuck before the connection counts as broken

	// Receiving:
	order sync.Mutex // held while messages are delivered
	came  uint64     // number of the last message that arrived
	told  uint64     // last acknowledged number
	ack   time.Time  // when to acknowledge; zero: nothing to acknowledge

	resent int64
}

// sessions numbers the sessions of all nodes in this process, so that a later session of a node has a
// greater number.
var sessions atomic.Uint64

// SetPeer adds a process, or changes its address. A forgotten process begins a new session; late messages
// of the earlier session are dropped.
func (n *Node) SetPeer(id ID, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.peers[id]
	if p == nil {
		p = &peer{id: id, session: sessions.Add(1)}
		n.peers[id] = p
	}
	p.address = address
}

// Forget drops the link to a process, and the messages that wait for it.
func (n *Node) Forget(id ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.peers, id)
}

// Post sends a message. The caller sets the envelope's body and target; the node sets the rest. It may send them again later, so the caller
// must not change what they refer to.
func (n *Node) Post(to ID, e *wire.Envelope) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.peers[to]
	if p == nil || n.closed {
		return fmt.Errorf("%w: %v", ErrUnknown, to)
	}
	if len(p.waiting) >= LimitUnacknowledged {
		return fmt.Errorf("%w: %d to %s, the limit", ErrFull, len(p.waiting), p.address)
	}
	p.last++
	e.Seq = p.last
	p.waiting = append(p.waiting, e)
	if p.again.IsZero() {
		p.pause, p.patient, p.stuck = resendFirst, redialFirst, time.Now()
		p.again = p.stuck.Add(p.pause)
		n.arm(p.again)
	}
	n.send(p, e)
	return nil
}

// send sends a copy of an envelope with the latest acknowledgment; earlier copies may still be in
// use. mu is held, so that messages leave in order.
func (n *Node) send(p *peer, e *wire.Envelope) {
	p.told, p.ack = p.came, time.Time{}
	n.cfg.Send(p.address, &wire.Envelope{From: n.cfg.Self[:], To: p.id[:], Sender: n.cfg.Name, Seq: e.GetSeq(), Ack: p.came,
		Session: p.session, PeerSession: p.theirs, Target: e.GetTarget(), Body: e.GetBody()})
}

// greet answers an envelope from a peer that doesn't know this node's session yet. mu is held.
func (n *Node) greet(p *peer, session uint64) {
	n.cfg.Send(p.address, &wire.Envelope{From: n.cfg.Self[:], To: p.id[:], Sender: n.cfg.Name, Session: p.session, PeerSession: session})
}

// join reports whether an envelope belongs to the current sessions of both sides. The numbers of another session mean
// nothing here. If the peer does not know this node's session yet, join tells it, and the peer resends. mu is held.
func (n *Node) join(p *peer, e *wire.Envelope) bool {
	switch {
	case e.GetSession() == 0 || e.GetSession() < p.theirs: // it is late
		return false
	case e.GetPeerSession() != p.session:
		n.suspect(p)
		if e.GetSeq() != 0 {
			n.greet(p, e.GetSession())
		}
		return false
	case e.GetSession() > p.theirs:
		p.theirs, p.came, p.told, p.ack = e.GetSession(), 0, 0, time.Time{}
		if len(p.waiting) > 0 {
			p.pause = resendFirst
			n.resend(p)
		}
	}
	return true
}

// Receive handles an envelope. Its error says why the envelope was dropped; a duplicate, or a
// message out of order, is not an error.
func (n *Node) Receive(e *wire.Envelope) error {
	from, err := uuid.FromBytes(e.GetFrom())
	if err != nil {
		return fmt.Errorf("the sender's id has %d bytes, not 16", len(e.GetFrom()))
	}
	if to, err := uuid.FromBytes(e.GetTo()); err != nil || to != n.cfg.Self {
		return fmt.Errorf("the message from %v is for process %x, but this is %v", from, e.GetTo(), n.cfg.Self)
	}
	n.mu.Lock()
	p := n.peers[from]
	n.mu.Unlock()
	if p == nil {
		return fmt.Errorf("message from an %w: %v", ErrUnknown, from)
	}
	p.order.Lock()
	defer p.order.Unlock()
	if n.take(p, e) {
		n.cfg.Deliver(from, e)
	}
	return nil
}

// take handles an envelope's acknowledgment, and reports whether its message is the next one.
func (n *Node) take(p *peer, e *wire.Envelope) (next bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.peers[p.id] != p || !n.join(p, e) {
		return false
	}
	n.acknowledged(p, e.GetAck())
	n.suspect(p)
	if e.GetSeq() == 0 {
		return false
	}
	if next = e.GetSeq() == p.came+1; next {
		p.came++
	}
	// A duplicate is acknowledged again, because the peer did not get the first acknowledgment.
	switch {
	case !next || p.came-p.told >= ackEvery:
		n.send(p, nil)
	case p.ack.IsZero():
		p.ack = time.Now().Add(ackAfter)
		n.arm(p.ack)
	}
	return next
}

// acknowledged drops the messages that a peer has acknowledged.
func (n *Node) acknowledged(p *peer, upTo uint64) {
	had := 0
	for had < len(p.waiting) && p.waiting[had].GetSeq() <= upTo {
		p.waiting[had] = nil
		had++
	}
	if had == 0 {
		return
	}
	if p.waiting = p.waiting[had:]; len(p.waiting) == 0 {
		p.waiting, p.again = nil, time.Time{}
		return
	}
	p.pause, p.patient, p.stuck = resendFirst, redialFirst, time.Now()
	p.again = p.stuck.Add(p.pause)
}

// suspect redials a process that sends messages but has acknowledged nothing for long: the network
// was broken and is back, and the connection is not.
func (n *Node) suspect(p *peer) {
	if len(p.waiting) == 0 || n.cfg.Redial == nil || time.Since(p.stuck) < p.patient {
		return
	}
	p.patient = 2 * time.Since(p.stuck) // a slow network needs more time
	n.redial(p)
}

// Redial resends the messages that wait for a process at once, over a new connection.
func (n *Node) Redial(id ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.peers[id]; p != nil && !n.closed {
		n.redial(p)
	}
}

// redial resends the waiting messages over a new connection.
func (n *Node) redial(p *peer) {
	if n.cfg.Redial != nil {
		n.cfg.Redial(p.id, p.address)
	}
	p.pause = resendFirst
	n.resend(p)
}

// Stuck returns how long messages have waited for a process without any acknowledgment; 0: no
// message waits. A process acknowledges a message as soon as it arrives, so a process that does not
// for seconds can't be reached.
func (n *Node) Stuck(id ID) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.peers[id]; p != nil && len(p.waiting) > 0 {
		return time.Since(p.stuck)
	}
	return 0
}

// Reconnected says that this process can reach others again. The node resends waiting messages at once,
// over new connections, and sends the other peers an acknowledgment.
func (n *Node) Reconnected() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	for _, p := range n.peers {
		n.redial(p)
		if len(p.waiting) == 0 {
			n.send(p, nil)
		}
	}
}

// resend resends the waiting messages, from the first on.
func (n *Node) resend(p *peer) {
	if len(p.waiting) == 0 {
		return
	}
	for _, e := range p.waiting[:min(len(p.waiting), resendWindow)] {
		n.send(p, e)
		p.resent++
	}
	p.pause = min(2*p.pause, resendMost)
	p.again = time.Now().Add(p.pause)
	n.arm(p.again)
}

// arm makes the timer fire at a time, or earlier. mu is held.
func (n *Node) arm(at time.Time) {
	switch {
	case n.closed:
	case n.timer == nil:
		n.due = at
		n.timer = time.AfterFunc(time.Until(at), n.fire)
	case at.Before(n.due):
		n.due = at
		n.timer.Reset(time.Until(at))
	}
}

// fire sends the acknowledgments and resends that are due. An idle node has no timer.
func (n *Node) fire() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.timer = nil
	if n.closed {
		return
	}
	now := time.Now()
	for _, p := range n.peers {
		if !p.ack.IsZero() && !p.ack.After(now) {
			n.send(p, nil)
		}
		if !p.again.IsZero() && !p.again.After(now) {
			n.resend(p)
		}
		for _, at := range []time.Time{p.ack, p.again} {
			if !at.IsZero() {
				n.arm(at)
			}
		}
	}
}

// Waiting returns the number of unacknowledged messages to a process, and how many messages were
// resent.
func (n *Node) Waiting(id ID) (waiting int, resent int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.peers[id]; p != nil {
		return len(p.waiting), p.resent
	}
	return 0, 0
}

// Close ends the node. It drops the waiting messages.
func (n *Node) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if n.timer != nil {
		n.timer.Stop()
	}
}
