package lane

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// outMsg is an outgoing message. Its fields are guarded by the mutex of its out.
type outMsg struct {
	seq    uint64
	group  *Group // nil: the message was withdrawn
	header []byte
	parts  [][]byte
	pieces Pieces // nil: the payload is parts
	total  int
	done   func(error)
	left   func(free bool) // called when the payload is copied to slot, or written; nil: there is none, or it was called
	least  int             // least bytes of a piece that goes through shared memory
	region *region         // of slot; nil: parts are in the caller's memory
	slot   int

	piece  int     // bytes of each piece but the last
	sentOn []uint8 // for each piece the stream that took it, plus 1; 0 if none has
	unsent int
	cursor int // no piece below is unsent

	writers  int  // streams that use parts now
	inRing   bool // not acknowledged
	queued   bool // in the queue of messages with unsent pieces
	finished bool // done was called, or is called when writers is 0
	err      error
	next     *outMsg // in the queue, or in the pool
}

// outPool keeps finished messages, with their slices, for reuse.
type outPool struct {
	mu   sync.Mutex
	free *outMsg
	kept int
}

// limitPool bounds the messages that are kept for reuse.
const limitPool = 256

func (p *outPool) get() *outMsg {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.free
	if m == nil {
		return &outMsg{}
	}
	p.free = m.next
	p.kept--
	m.next = nil
	return m
}

func (p *outPool) put(m *outMsg) {
	clear(m.parts)
	*m = outMsg{header: m.header[:0], parts: m.parts[:0], sentOn: m.sentOn[:0]}
	if cap(m.header) > limitStripedMeta || cap(m.parts) > limitStripedMeta/lenBytes || cap(m.sentOn) > limitStripedMeta {
		return // don't keep rare sizes
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept < limitPool {
		m.next, p.free = p.free, m
		p.kept++
	}
}

// out is the sending side for one peer.
type out struct {
	node    *Node
	peer    ID
	session uint64

	mu       sync.Mutex
	work     sync.Cond // connected streams wait here for pieces
	dialable sync.Cond // other streams wait here for an address and a reason to dial
	address  string
	redial   chan struct{} // closed and replaced when the address changes
	ended    error
	ctx      context.Context // ends with end
	cancel   context.CancelFunc
	streams  [LimitStreams]*outStream
	want     int // number of streams that should exist

	ring []*outMsg // messages base to next-1, at seq & (len-1)
	base uint64    // the oldest unacknowledged message
	next uint64

	head, tail *outMsg // the queue of messages with unsent pieces

	shares atomic.Int32 // number of streams whose payload may go through shared memory

	heard time.Time // when the peer was last known to be reachable, or no message waited

	stats outStats
}

type outStats struct {
	messages, bytes, resent uint64
	queued                  int
	queuedBytes             int64
}

func newOut(n *Node, peer ID, session uint64) *out {
	o := &out{node: n, peer: peer, session: session, base: 1, next: 1, redial: make(chan struct{})}
	o.work.L, o.dialable.L = &o.mu, &o.mu
	o.ctx, o.cancel = context.WithCancel(n.ctx)
	return o
}

// send queues a message. On an error nothing was queued, and done is not called.
func (o *out) send(g *Group, header []byte, parts [][]byte, pieces Pieces, total int, left func(free bool), done func(error)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil {
		return o.ended
	}
	// Group.Close sets closed and then calls withdraw, which takes the same lock.
	if g.closed.Load() {
		return ErrClosed
	}
	if o.next-o.base >= LimitPending {
		return fmt.Errorf("%w: %d to %v since the oldest unacknowledged one, the limit", ErrFull, o.next-o.base, o.peer)
	}
	if o.base == o.next {
		o.heard = time.Now()
	}
	m := o.node.pool.get()
	m.group, m.pieces, m.total, m.left, m.done = g, pieces, total, left, done
	m.least = sharedFrom
	if left != nil {
		m.least = sharedLeaving
	}
	m.header = append(m.header, header...)
	m.parts = append(m.parts, parts...)
	m.piece = max(total, 1)
	if total > LimitPiece && len(header)+lenBytes*len(parts) <= limitStripedMeta {
		m.piece = LimitPiece
		o.want = max(o.want, o.node.config.Streams)
	}
	m.seq = o.next
	o.next++
	o.push(m)
	o.stats.queued++
	o.stats.queuedBytes += int64(total)
	o.setPieces(m, max(1, (total+m.piece-1)/m.piece))
	o.enqueue(m, false)
	o.wake(m.unsent)
	return nil
}

// setPieces sets the number of m's pieces and marks all as unsent.
func (o *out) setPieces(m *outMsg, n int) {
	if cap(m.sentOn) < n {
		m.sentOn = make([]uint8, n)
	}
	m.sentOn = m.sentOn[:n]
	clear(m.sentOn)
	m.unsent, m.cursor = n, 0
}

// push stores m in the ring.
func (o *out) push(m *outMsg) {
	if int(m.seq-o.base) >= len(o.ring) {
		grown := make([]*outMsg, max(16, 2*len(o.ring)))
		for seq := o.base; seq < m.seq; seq++ {
			grown[seq&uint64(len(grown)-1)] = o.at(seq)
		}
		o.ring = grown
	}
	o.set(m.seq, m)
	m.inRing = true
}

func (o *out) at(seq uint64) *outMsg     { return o.ring[seq&uint64(len(o.ring)-1)] }
func (o *out) set(seq uint64, m *outMsg) { o.ring[seq&uint64(len(o.ring)-1)] = m }

func (o *out) enqueue(m *outMsg, front bool) {
	if m.queued {
		return
	}
	m.queued = true
	switch {
	case o.head == nil:
		o.head, o.tail = m, m
	case front:
		m.next, o.head = o.head, m
	default:
		o.tail.next, o.tail = m, m
	}
}

// wake wakes streams for n pieces, and starts missing streams.
func (o *out) wake(n int) {
	o.want = max(o.want, 1)
	for k := range o.want {
		if o.streams[k] == nil {
			o.streams[k] = newOutStream(o, k)
			o.node.wg.Add(1)
			go o.streams[k].run() // ends with end
		}
	}
	for range min(n, o.want) {
		o.work.Signal()
	}
	o.dialable.Broadcast()
}

// pick takes the next piece for a stream; nil: there is none.
func (o *out) pick(stream int) (m *outMsg, piece int) {
	for o.head != nil {
		m = o.head
		if !m.finished {
			for m.cursor < len(m.sentOn) && m.sentOn[m.cursor] != 0 {
				m.cursor++
			}
			if m.cursor < len(m.sentOn) {
				piece = m.cursor
				m.sentOn[piece] = uint8(stream + 1)
				m.unsent--
				m.writers++
				if m.unsent == 0 {
					o.dequeue()
				}
				return m, piece
			}
		}
		o.dequeue()
		o.recycle(m)
	}
	return nil, 0
}

func (o *out) dequeue() {
	m := o.head
	o.head = m.next
	if o.head == nil {
		o.tail = nil
	}
	m.next, m.queued = nil, false
}

// release ends a stream's use of a message. If that finishes the message, it appends the pending call of done.
func (o *out) release(m *outMsg, due []outcome) []outcome {
	if m.writers--; m.writers == 0 && m.finished {
		due = o.conclude(m, due)
	}
	return due
}

func (o *out) conclude(m *outMsg, due []outcome) []outcome {
	if m.group != nil {
		due = append(due, outcome{m.done, m.err, m.group})
		m.group = nil
	}
	m.done = nil
	o.recycle(m)
	return due
}

// recycle returns a message to the pool when nothing refers to it any more.
func (o *out) recycle(m *outMsg) {
	if m.finished && m.writers == 0 && !m.queued && !m.inRing {
		o.node.pool.put(m)
	}
}

// leave returns the call of the message's left function, if the stream that has just written its part was the last. A copy in
// a slot (from 1; 0: there is none) becomes the source for a resend, and the caller's memory is then free.
func (o *out) leave(m *outMsg, r *region, slot int) func() {
	if m.left == nil || m.finished || m.unsent > 0 || m.writers > 1 {
		return nil
	}
	left := m.left
	m.left = nil
	if slot == 0 {
		return func() { left(false) }
	}
	m.region, m.slot = r, slot-1
	m.place(r.slot(slot-1, m.total))
	return func() { left(true) }
}

// place makes the parts point into b, one after another.
func (m *outMsg) place(b []byte) {
	for k, part := range m.parts {
		n := len(part)
		m.parts[k], b = b[:n:n], b[n:]
	}
}

// drop removes a message from the ring: it ended with err. done is called when no stream uses its memory.
func (o *out) drop(m *outMsg, err error, due []outcome) []outcome {
	if m.group != nil {
		o.stats.queued--
		o.stats.queuedBytes -= int64(m.total)
	}
	m.inRing = false
	o.set(m.seq, nil)
	m.finished, m.err = true, err
	if m.writers == 0 {
		due = o.conclude(m, due)
	}
	return due
}

// acknowledge handles the numbers of messages that have arrived: all below cumulative, and those in list.
func (o *out) acknowledge(cumulative uint64, list []uint64, due []outcome) ([]outcome, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil {
		return due, o.ended
	}
	if cumulative > o.next {
		return due, fmt.Errorf("%w: it acknowledges all messages below %d, but the next is %d", errFrame, cumulative, o.next)
	}
	one := func(seq uint64) {
		if m := o.at(seq); m != nil {
			o.heard = time.Now()
			if m.group != nil {
				o.stats.messages++
				o.stats.bytes += uint64(m.total)
			}
			due = o.drop(m, nil, due)
		}
	}
	for seq := o.base; seq < cumulative; seq++ {
		one(seq)
	}
	for _, seq := range list {
		if seq >= o.next {
			return due, fmt.Errorf("%w: it acknowledges message %d, but the next is %d", errFrame, seq, o.next)
		}
		if seq >= o.base {
			one(seq)
		}
	}
	for o.base < o.next && o.at(o.base) == nil {
		o.base++
	}
	return due, nil
}

// stuck returns PeerStats.Stuck. mu is held.
func (o *out) stuck() time.Duration {
	if o.base == o.next {
		return 0
	}
	now := time.Now()
	for _, s := range o.streams {
		if s == nil || s.conn == nil || !s.ready || s.broken {
			continue
		}
		// Stored, because a closed connection can't be asked later.
		if quiet, ok := unheard(s.conn); ok && now.Add(-quiet).After(o.heard) {
			o.heard = now.Add(-quiet)
		}
	}
	return now.Sub(o.heard)
}

// lost marks the pieces that a broken stream had taken as unsent.
func (o *out) lost(stream int) {
	if o.ended != nil {
		return
	}
	pieces := 0
	for seq := o.next; seq > o.base; seq-- { // from the newest, because each goes to the front of the queue
		m := o.at(seq - 1)
		if m == nil {
			continue
		}
		again := 0
		for k, on := range m.sentOn {
			if on == uint8(stream+1) {
				m.sentOn[k] = 0
				again++
			}
		}
		if again > 0 {
			o.stats.resent++
			m.unsent += again
			m.cursor = 0
			o.enqueue(m, true)
			pieces += again
		}
	}
	if pieces > 0 {
		o.wake(pieces)
	}
}

// setAddress sets the peer's address.
func (o *out) setAddress(address string) {
	o.mu.Lock()
	if o.address == address || o.ended != nil {
		o.mu.Unlock()
		return
	}
	o.address = address
	o.breakAll()
	o.mu.Unlock()
}

// dialAnew breaks the streams if a message waits for its acknowledgment.
func (o *out) dialAnew() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended == nil && o.base != o.next {
		o.breakAll()
	}
}

// breakAll ends the connections of all streams; their goroutines redial at once.
func (o *out) breakAll() {
	close(o.redial)
	o.redial = make(chan struct{})
	o.breakStreams(func(*outStream) bool { return true })
	o.dialable.Broadcast()
}

// breakStreams ends the connections of some streams; their goroutines redial.
func (o *out) breakStreams(which func(*outStream) bool) {
	for _, s := range o.streams {
		if s != nil && s.conn != nil && !s.broken && which(s) {
			s.broken = true
			notify(s.stop)
			abort(s.conn)
		}
	}
	o.work.Broadcast()
}

// end finishes all messages with err, and the streams.
func (o *out) end(err error) {
	var due []outcome
	o.mu.Lock()
	if o.ended == nil {
		o.ended = err
		o.cancel()
		for seq := o.base; seq < o.next; seq++ {
			if m := o.at(seq); m != nil {
				due = o.drop(m, err, due)
			}
		}
		o.base = o.next
		o.breakStreams(func(*outStream) bool { return true })
		o.dialable.Broadcast()
	}
	o.mu.Unlock()
	report(due)
}

// withdraw finishes the messages of a closed group. It tells the receiver that they were withdrawn, because
// the receiver waits for each number.
func (o *out) withdraw(g *Group) {
	var due []outcome
	o.mu.Lock()
	for seq := o.base; seq < o.next; seq++ {
		m := o.at(seq)
		if m == nil || m.group != g {
			continue
		}
		due = o.withdrawOne(m, ErrClosed, due)
	}
	if o.ended == nil && o.head != nil {
		o.wake(1)
	}
	o.mu.Unlock()
	report(due)
}

// withdrawOne ends a message with err, and replaces it with a skip frame.
func (o *out) withdrawOne(m *outMsg, err error, due []outcome) []outcome {
	seq := m.seq
	due = o.drop(m, err, due)
	skip := o.node.pool.get()
	skip.seq, skip.piece, skip.inRing = seq, 1, true
	o.set(seq, skip)
	o.setPieces(skip, 1)
	o.enqueue(skip, false)
	return due
}

// fail withdraws a message whose payload can't be read. A stream is among its writers, so m has not been recycled.
func (o *out) fail(m *outMsg, err error, due []outcome) []outcome {
	if m.finished || o.ended != nil {
		return due
	}
	due = o.withdrawOne(m, err, due)
	o.wake(1)
	return due
}

// interrupt breaks the streams that are writing messages of a closed group.
func (o *out) interrupt(g *Group) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.breakStreams(func(s *outStream) bool {
		for i := range s.batch {
			if s.batch[i].m.group == g {
				return true
			}
		}
		return false
	})
}
