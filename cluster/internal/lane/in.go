package lane

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
)

// States of a piece at the receiver; any other is the index of the stream that reads it, plus 1.
const (
	pieceMissing = 0
	pieceHere    = 255
)

// inMsg is a message of which at least one piece has arrived. Its fields are guarded by the mutex of its in.
type inMsg struct {
	seq     uint64
	group   *Group // nil: the group is not open here
	total   uint64
	striped bool
	place   Place
	kept    bool        // the taker keeps the payload in shared memory, so nothing is read
	done    func(error) // nil: there is none, or it was called
	state   []uint8
	left    int

	taking  bool // take is running
	readers int  // streams that read into place
	discard bool // its payload is discarded
	cancel  error
}

// in is the receiving side for one peer in one session.
type in struct {
	node    *Node
	peer    ID
	session uint64

	mu      sync.Mutex
	changed sync.Cond // signals that a stream that waits should check again
	ended   error
	next    uint64   // all messages below have arrived
	arrived []uint64 // one bit for each number from next on, at number modulo LimitPending
	high    uint64   // no message from here on has arrived
	msgs    map[uint64]*inMsg
	streams [LimitStreams]*inStream
	free    []*inMsg

	// below is a copy of next for a stream that must not wait for mu: its holder may be closing the stream's connection,
	// and that waits for the stream.
	below atomic.Uint64

	messages, bytes atomic.Uint64
}

func newIn(n *Node, peer ID, session uint64) *in {
	i := &in{node: n, peer: peer, session: session, next: 1, high: 1, msgs: make(map[uint64]*inMsg)}
	i.changed.L = &i.mu
	i.below.Store(i.next)
	return i
}

// hasArrived reports whether a message is complete.
func (i *in) hasArrived(seq uint64) bool {
	if seq < i.next {
		return true
	}
	return seq < i.high && i.arrived[seq%LimitPending/64]&(1<<(seq%64)) != 0
}

// setArrived marks a message as complete.
func (i *in) setArrived(seq uint64) {
	if seq < i.next {
		return
	}
	i.high = max(i.high, seq+1)
	if seq == i.next {
		i.next++
		for i.next < i.high && i.arrived != nil && i.hasArrived(i.next) {
			i.arrived[i.next%LimitPending/64] &^= 1 << (i.next % 64)
			i.next++
		}
		i.below.Store(i.next)
		return
	}
	if i.arrived == nil {
		i.arrived = make([]uint64, LimitPending/64)
	}
	i.arrived[seq%LimitPending/64] |= 1 << (seq % 64)
}

// arrivedAfter appends up to n numbers from seq on of messages that have arrived out of order. It also returns the number
// to continue from.
func (i *in) arrivedAfter(seq uint64, n int, list []uint64) ([]uint64, uint64) {
	for seq = max(seq, i.next); seq < i.high && n > 0; {
		word := i.arrived[seq%LimitPending/64] >> (seq % 64)
		if word == 0 {
			seq = (seq/64 + 1) * 64
			continue
		}
		seq += uint64(bits.TrailingZeros64(word))
		if seq < i.high {
			list = append(list, seq)
			n--
		}
		seq++
	}
	return list, seq
}

func (i *in) newMsg(p *prefix) *inMsg {
	var m *inMsg
	if n := len(i.free); n > 0 {
		m, i.free = i.free[n-1], i.free[:n-1]
	} else {
		m = &inMsg{}
	}
	pieces := p.pieces()
	state := m.state
	if cap(state) < pieces {
		state = make([]uint8, pieces)
	}
	state = state[:pieces]
	clear(state)
	*m = inMsg{seq: p.seq, total: p.total, striped: p.flags&flagStriped != 0, state: state, left: pieces}
	return m
}

func (i *in) freeMsg(m *inMsg) {
	if len(i.free) < limitPool && cap(m.state) <= limitStripedMeta {
		*m = inMsg{state: m.state}
		i.free = append(i.free, m)
	}
}

// conclude appends the pending call of a message's done function.
func conclude(m *inMsg, err error, due []outcome) []outcome {
	if m.group == nil || m.done == nil {
		return due
	}
	due = append(due, outcome{m.done, err, m.group})
	m.done, m.place = nil, Place{}
	return due
}

// begin decides what to do with a piece: read it into m.place (reading), or discard it. m is nil if the message or the
// piece has already arrived. header and lens followed the prefix.
func (s *inStream) begin(p *prefix, header []byte, lens []int) (m *inMsg, piece int, reading bool, err error) {
	i := s.in
	if p.flags&flagStriped != 0 {
		piece = int(p.offset / LimitPiece)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for {
		if err := s.live(); err != nil {
			return nil, 0, false, err
		}
		if p.seq == 0 || p.seq >= i.next+LimitPending {
			return nil, 0, false, fmt.Errorf("%w: message %d is out of range; the next is %d, and up to %d may be pending", errFrame, p.seq, i.next,
				LimitPending)
		}
		if i.hasArrived(p.seq) {
			return nil, 0, false, nil
		}
		m = i.msgs[p.seq]
		if m == nil {
			if len(i.msgs) >= LimitPartial {
				return nil, 0, false, fmt.Errorf("%w: message %d begins while %d others are incomplete, the limit", errFrame, p.seq, len(i.msgs))
			}
			m = i.newMsg(p)
			i.msgs[p.seq] = m
			s.callTake(m, p, header, lens)
			continue // the lock was released meanwhile
		}
		if m.total != p.total || m.striped != (p.flags&flagStriped != 0) {
			return nil, 0, false, fmt.Errorf("%w: message %d has %d bytes, but an earlier piece of it said %d", errFrame, p.seq, p.total, m.total)
		}
		switch state := m.state[piece]; {
		case m.taking:
			if err := s.wait(); err != nil {
				return nil, 0, false, err
			}
		case state == pieceHere:
			return nil, 0, false, nil
		case state != pieceMissing:
			// The sender has given up the stream that reads this piece; otherwise it wouldn't resend it.
			if int(state) == s.index+1 {
				return nil, 0, false, fmt.Errorf("%w: the piece is already being read on this stream", errFrame)
			}
			i.streams[state-1].giveUp()
			if err := s.wait(); err != nil {
				return nil, 0, false, err
			}
		default:
			m.state[piece] = uint8(s.index + 1)
			reading = !m.discard && !m.kept
			if reading {
				m.readers++
			}
			return m, piece, reading, nil
		}
	}
}

// wait waits until something changes. It sends pending acknowledgments first.
func (s *inStream) wait() error {
	if len(s.acks) > 0 {
		s.in.mu.Unlock()
		err := s.flushAcks()
		s.in.mu.Lock()
		return err // the caller checks again, since the lock was released
	}
	s.in.changed.Wait()
	return nil
}

// callTake gets memory from the group. It releases the lock meanwhile.
func (s *inStream) callTake(m *inMsg, p *prefix, header []byte, lens []int) {
	i := s.in
	g := i.node.group(p.group)
	if g == nil || !g.use() {
		m.discard = true
		return
	}
	m.taking = true
	i.mu.Unlock()
	var place Place
	var done func(error)
	var err error
	if g.takeLoan != nil {
		s.loan = s.lendable(p)
		place.Parts, done, err = g.takeLoan(i.peer, header, lens, s.loan)
	} else {
		place, done, err = g.take(i.peer, header, lens)
	}
	kept := s.loan != nil && s.loan.kept
	if err == nil && !kept {
		if err = place.check(lens); err != nil && done != nil {
			done(err)
		}
	}
	if done == nil {
		done = func(error) {}
	}
	if err != nil {
		i.node.log.warn("message discarded", "peer", i.peer, "group", p.group, "message", p.seq, "bytes", p.total, "reason", err)
		g.unuse()
	}
	var due []outcome
	i.mu.Lock()
	m.taking = false
	switch {
	case err != nil:
		m.discard = true
	default:
		m.group, m.done, m.place, m.kept = g, done, place, kept
		switch {
		case m.cancel != nil:
		case i.ended != nil:
			m.cancel = i.ended
		case g.closed.Load():
			m.cancel = ErrClosed
		}
		if m.cancel != nil {
			m.discard = true
			due = conclude(m, m.cancel, due)
		}
	}
	i.changed.Broadcast()
	if len(due) > 0 {
		i.mu.Unlock()
		report(due)
		i.mu.Lock()
	}
}

// check checks that a place is for parts of the given lengths.
func (p *Place) check(lens []int) error {
	if p.Pieces == nil {
		return sameLens(p.Parts, lens)
	}
	if len(lens) != 1 || p.Pieces.Len() != lens[0] {
		return fmt.Errorf("lane: the place has %d bytes in pieces, but the message has parts of %d bytes", p.Pieces.Len(), lens)
	}
	return nil
}

func sameLens(parts [][]byte, lens []int) error {
	if len(parts) != len(lens) {
		return fmt.Errorf("lane: the memory has %d parts, but the message has %d", len(parts), len(lens))
	}
	for k, part := range parts {
		if len(part) != lens[k] {
			return fmt.Errorf("lane: the memory has %d bytes for part %d, which has %d bytes", len(part), k, lens[k])
		}
	}
	return nil
}

// letGo ends a stream's use of a canceled message's memory before its piece is complete.
func (s *inStream) letGo(m *inMsg) {
	i := s.in
	i.mu.Lock()
	due := i.unread(m, s.due)
	i.mu.Unlock()
	report(due)
	s.due = due[:0]
}

func (i *in) unread(m *inMsg, due []outcome) []outcome {
	if m.readers--; m.readers == 0 && m.cancel != nil {
		due = conclude(m, m.cancel, due)
	}
	return due
}

// cancelled reports whether a message that a stream reads was canceled.
func (s *inStream) cancelled(m *inMsg) bool {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	return m.discard
}

// end ends a piece, completely read or not. reading says that the stream is still among the message's readers.
// It reports whether the message is complete now.
func (s *inStream) end(m *inMsg, piece int, reading, complete bool) (last bool) {
	i := s.in
	i.mu.Lock()
	due := s.due
	m.state[piece] = pieceMissing
	if complete {
		m.state[piece] = pieceHere
		m.left--
	}
	last = complete && m.left == 0
	if reading && !last {
		due = i.unread(m, due)
	}
	if last {
		// All pieces are here, so no other stream reads. done is called before the acknowledgment.
		if reading {
			m.readers--
		}
		err := m.cancel
		counted := m.group != nil && err == nil
		due = conclude(m, err, due)
		i.mu.Unlock()
		report(due)
		due = due[:0]
		i.mu.Lock()
		if counted {
			i.messages.Add(1)
			i.bytes.Add(m.total)
		}
		if i.msgs[m.seq] == m { // not withdrawn meanwhile
			delete(i.msgs, m.seq)
			i.setArrived(m.seq)
			i.freeMsg(m)
		}
	}
	i.changed.Broadcast()
	i.mu.Unlock()
	report(due)
	s.due = due[:0]
	return last
}

// skip notes that a message was withdrawn.
func (s *inStream) skip(seq uint64) error {
	i := s.in
	i.mu.Lock()
	var due []outcome
	defer func() {
		i.changed.Broadcast()
		i.mu.Unlock()
		report(due)
	}()
	for {
		if err := s.live(); err != nil {
			return err
		}
		if seq == 0 || seq >= i.next+LimitPending {
			return fmt.Errorf("%w: withdrawn message %d is out of range; the next is %d, and up to %d may be pending", errFrame, seq, i.next,
				LimitPending)
		}
		if i.hasArrived(seq) {
			return nil
		}
		m := i.msgs[seq]
		if m != nil && m.taking {
			if err := s.wait(); err != nil {
				return err
			}
			continue
		}
		if m != nil {
			delete(i.msgs, seq) // streams that read it still refer to it
			due = i.cancel(m, ErrWithdrawn, due)
		}
		i.setArrived(seq)
		return nil
	}
}

// fail discards a message whose payload can't be written. A stream is among its readers.
func (i *in) fail(m *inMsg, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	_ = i.cancel(m, err, nil) // the last reader calls done
}

// cancel discards a message: done is called with err when no stream reads into its memory any more.
func (i *in) cancel(m *inMsg, err error, due []outcome) []outcome {
	if m.cancel != nil {
		return due
	}
	m.cancel = err
	if m.taking {
		return due // callTake checks m.cancel
	}
	m.discard = true
	if m.readers == 0 {
		return conclude(m, err, due)
	}
	for _, state := range m.state {
		if state != pieceMissing && state != pieceHere {
			i.streams[state-1].interrupt()
		}
	}
	return due
}

// cancelGroup cancels the messages of a closed group.
func (i *in) cancelGroup(g *Group) {
	var due []outcome
	i.mu.Lock()
	for _, m := range i.msgs {
		if m.group == g {
			due = i.cancel(m, ErrClosed, due)
		}
	}
	i.mu.Unlock()
	report(due)
}

// end cancels all messages and ends the streams.
func (i *in) end(err error) {
	var due []outcome
	i.mu.Lock()
	if i.ended == nil {
		i.ended = err
		for _, s := range i.streams {
			if s != nil {
				s.giveUp()
			}
		}
		for _, m := range i.msgs {
			due = i.cancel(m, err, due)
		}
		i.changed.Broadcast()
	}
	i.mu.Unlock()
	report(due)
}
