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
	ErrUnknown = errors.New("the process is not known")
	ErrFull    = errors.New("too many messages wait for acknowledgement")
)

// Config is what a Node needs.
type Config struct {
	Self ID
	Name string // of this process, in every envelope
	// Send passes an envelope on to an address, or loses it. It must not block for long, nor
	// change the envelope, nor call the node.
	Send func(address string, e *wire.Envelope)
	// Redial drops the connection to a process, so that what is sent goes over a new one. The
	// same holds for it; nil: nobody can.
	Redial func(id ID, address string)
	// Deliver is called once for each message, one after the other for each peer.
	Deliver func(from ID, e *wire.Envelope)
}

// Node is a process's end of its links.
type Node struct {
	cfg Config

	mu     sync.Mutex
	peers  map[ID]*peer
	timer  *time.Timer // of the next acknowledgement or resend; nil: nothing is due
	due    time.Time   // when it fires
	closed bool
}

// New makes a node. Close ends it.
func New(cfg Config) *Node { return &Node{cfg: cfg, peers: make(map[ID]*peer)} }

// peer is the state of the link to a process. Guarded by Node.mu, but for order.
type peer struct {
	id      ID
	address string
	session uint64 // of this node's numbers for the peer: another each time the peer becomes known
	theirs  uint64 // session of the peer's numbers for this node; 0: it has not been heard of

	// What goes there.
	last    uint64           // number of the last message posted
	waiting []*wire.Envelope // not acknowledged, in order
	again   time.Time        // when they are sent again; zero: nothing waits
	stuck   time.Time        // since when nothing of them was acknowledged
	pause   time.Duration    // until the time after that
	patient time.Duration    // how long they must be stuck until the connection is taken for broken

	// What comes from there.
	order sync.Mutex // held while messages are delivered
	came  uint64     // number of the last message that came
	told  uint64     // up to which number the peer was told
	ack   time.Time  // when it is to be told; zero: it knows

	resent int64
}

// sessions numbers those of all nodes of this process, which a peer tells apart by their ids: a later
// session of one has a greater number.
var sessions atomic.Uint64

// SetPeer makes a process known, or its address. A process that was forgotten begins a new session: what
// was on its way in the one before is dropped.
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

// Forget drops the link to a process, and what waits for it.
func (n *Node) Forget(id ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.peers, id)
}

// Post sends a message: its body and its target; the rest of the envelope is the node's.
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

// send passes a copy of an envelope on, with the latest acknowledgement: what was passed
// on before may still be read. mu is held, so that messages leave in order.
func (n *Node) send(p *peer, e *wire.Envelope) {
	p.told, p.ack = p.came, time.Time{}
	n.cfg.Send(p.address, &wire.Envelope{From: n.cfg.Self[:], To: p.id[:], Sender: n.cfg.Name, Seq: e.GetSeq(), Ack: p.came,
		Session: p.session, PeerSession: p.theirs, Target: e.GetTarget(), Body: e.GetBody()})
}

// greet tells a peer the session of this node, in an answer to an envelope of one that doesn't know it. mu is held.
func (n *Node) greet(p *peer, session uint64) {
	n.cfg.Send(p.address, &wire.Envelope{From: n.cfg.Self[:], To: p.id[:], Sender: n.cfg.Name, Session: p.session, PeerSession: session})
}

// join reports whether an envelope is of the present sessions of both sides. Numbers count in one session: an envelope
// of an earlier one, or for an earlier one, has another life's numbers. A peer that does not know the session here
// yet is told, and sends again. mu is held.
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

// Receive takes an envelope that came. It reports why it was dropped; a message that had
// come before, or came before its time, is no error.
func (n *Node) Receive(e *wire.Envelope) error {
	from, err := uuid.FromBytes(e.GetFrom())
	if err != nil {
		return fmt.Errorf("the sender's id has %d bytes, not 16", len(e.GetFrom()))
	}
	if to, err := uuid.FromBytes(e.GetTo()); err != nil || to != n.cfg.Self {
		return fmt.Errorf("a message from %v is for process %x, this is %v", from, e.GetTo(), n.cfg.Self)
	}
	n.mu.Lock()
	p := n.peers[from]
	n.mu.Unlock()
	if p == nil {
		return fmt.Errorf("%w: a message came from %v", ErrUnknown, from)
	}
	p.order.Lock()
	defer p.order.Unlock()
	if n.take(p, e) {
		n.cfg.Deliver(from, e)
	}
	return nil
}

// take notes what an envelope acknowledges, and whether its message is the next.
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
	// One that came before is acknowledged again: the peer did not hear of it.
	switch {
	case !next || p.came-p.told >= ackEvery:
		n.send(p, nil)
	case p.ack.IsZero():
		p.ack = time.Now().Add(ackAfter)
		n.arm(p.ack)
	}
	return next
}

// acknowledged drops what a peer has.
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

// suspect takes the connection to a process for broken when something has come from it, and still
// nothing of what was sent for long is acknowledged: the network was broken and is back.
func (n *Node) suspect(p *peer) {
	if len(p.waiting) == 0 || n.cfg.Redial == nil || time.Since(p.stuck) < p.patient {
		return
	}
	p.patient = 2 * time.Since(p.stuck) // a slow network must have the time that it needs
	n.redial(p)
}

// Redial sends what waits for a process at once, over a new connection.
func (n *Node) Redial(id ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.peers[id]; p != nil && !n.closed {
		n.redial(p)
	}
}

// redial sends what waits over a new connection.
func (n *Node) redial(p *peer) {
	if n.cfg.Redial != nil {
		n.cfg.Redial(p.id, p.address)
	}
	p.pause = resendFirst
	n.resend(p)
}

// Stuck is for how long messages have waited for a process without any of them being
// acknowledged; 0: none waits. A process acknowledges when it gets a message, whatever
// else it does: one that doesn't for seconds can't be reached.
func (n *Node) Stuck(id ID) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.peers[id]; p != nil && len(p.waiting) > 0 {
		return time.Since(p.stuck)
	}
	return 0
}

// Reconnected says that this process can reach others again: what waits goes at once, over new
// connections, and everybody hears of this process.
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

// resend sends again what waits, from the first on.
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

// fire does what is due. An idle node has no timer.
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

// Waiting is the number of messages that a process has not acknowledged, and how many
// were sent again.
func (n *Node) Waiting(id ID) (waiting int, resent int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.peers[id]; p != nil {
		return len(p.waiting), p.resent
	}
	return 0, 0
}

// Close ends the node. What waits is dropped.
func (n *Node) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if n.timer != nil {
		n.timer.Stop()
	}
}
