package lane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/minio/crc64nvme"
)

// inStream is a stream that a peer opened: it reads pieces and writes acknowledgments.
type inStream struct {
	in    *in
	index int
	conn  net.Conn

	broken bool          // guarded by in.mu: the stream is being closed
	stop   chan struct{} // buffer of 1; signals that the stream is closed or interrupted

	// used only by the goroutine of Accept
	checksum bool
	region   *region // nil: none
	loan     *Loan   // the loan offered to the message's taker; nil: none
	r        *frameReader
	meta     []byte
	lens     []int
	list     [][]byte
	acks     []uint64 // messages that arrived and are not acknowledged yet
	unacked  int      // bytes read since the last acknowledgment
	ackOut   []byte
	waste    []byte
	trailer  [sumBytes]byte
	due      []outcome
}

// Accept serves a stream that a peer opened, and returns when it ends. If admit is not nil, it checks that the peer is the
// process that it claims to be.
func (n *Node) Accept(conn net.Conn, admit func(from ID) error) {
	defer abort(conn)
	n.mu.Lock()
	if n.closed || len(n.handshakes) >= LimitHandshakes {
		closed := n.closed
		n.mu.Unlock()
		if !closed {
			n.log.warn("refused a stream: too many handshakes in progress", "from", conn.RemoteAddr(), "limit", LimitHandshakes)
		}
		return
	}
	n.handshakes[conn] = struct{}{}
	n.wg.Add(1)
	n.mu.Unlock()
	defer n.wg.Done()

	s, err := n.greet(conn, admit)
	n.mu.Lock()
	delete(n.handshakes, conn)
	n.mu.Unlock()
	if err != nil {
		n.log.warn("refused a stream", "from", conn.RemoteAddr(), "reason", err)
		return
	}
	err = s.run()
	s.leave()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
	default:
		n.log.warn("stream from a peer broke", "peer", s.in.peer, "stream", s.index, "reason", err)
	}
}

// greet reads a hello, answers it, and adds the stream to the peer's streams.
func (n *Node) greet(conn net.Conn, admit func(from ID) error) (*inStream, error) {
	limitSilence(conn)
	_ = conn.SetDeadline(time.Now().Add(n.handshakeTimeout))
	h, err := readHello(conn)
	if err != nil {
		return nil, err
	}
	answer := refusedOther
	var i *in
	var why error
	if h.to == n.config.Self {
		if admit != nil {
			why = admit(h.from)
		}
		if answer = refusedForeign; why == nil {
			i, answer = n.in(h.from, h.session)
		}
	}
	w := welcome{self: n.config.Self, answer: answer}
	if answer != accepted {
		_, _ = conn.Write(w.append(nil))
		if why != nil {
			return nil, fmt.Errorf("stream %d to %v: %w", h.stream, h.to, why)
		}
		return nil, fmt.Errorf("stream %d of %v to %v, session %d: %v", h.stream, h.from, h.to, h.session, answer)
	}
	s := &inStream{in: i, index: int(h.stream), conn: conn, stop: make(chan struct{}, 1), checksum: h.flags&flagChecksum != 0}
	s.r = newFrameReader(conn, s.flushAcks, &n.sleepers)
	if h.flags&flagOffer != 0 && !n.config.NoSharedMemory {
		if s.region, err = mapOffer(h.offer, h.nonce); err == nil {
			w.flags |= flagOffer
		}
	}
	if err := s.enter(); err != nil {
		s.closeRegion()
		return nil, err
	}
	if _, err = conn.Write(w.append(nil)); err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		s.leave()
		return nil, fmt.Errorf("answer the handshake: %w", err)
	}
	return s, nil
}

// in returns the receiving side for a peer in a session.
func (n *Node) in(from ID, session uint64) (*in, refusal) {
	n.mu.Lock()
	old := n.ins[from]
	last, gone := n.forgotten[from]
	switch {
	case n.closed:
		n.mu.Unlock()
		return nil, refusedClosed
	case gone && session <= last, old != nil && session < old.session:
		n.mu.Unlock()
		return nil, refusedSession
	case old != nil && session == old.session:
		n.mu.Unlock()
		return old, accepted
	case old == nil && len(n.ins) >= LimitPeers:
		n.mu.Unlock()
		return nil, refusedFull
	}
	i := newIn(n, from, session)
	n.ins[from] = i
	n.mu.Unlock()
	if old != nil {
		old.end(ErrGone)
	}
	return i, accepted
}

// enter makes s the peer's stream with its index. The peer has given up an earlier stream with this index: it ends first,
// so that each piece that it was reading is either complete or missing.
func (s *inStream) enter() error {
	i := s.in
	i.mu.Lock()
	defer i.mu.Unlock()
	for i.ended == nil && i.streams[s.index] != nil {
		i.streams[s.index].giveUp()
		i.changed.Wait()
	}
	if i.ended != nil {
		return i.ended
	}
	i.streams[s.index] = s
	return nil
}

func (s *inStream) leave() {
	s.in.mu.Lock()
	s.in.streams[s.index] = nil
	s.in.changed.Broadcast()
	s.in.mu.Unlock()
	s.closeRegion()
}

func (s *inStream) closeRegion() {
	if s.region != nil {
		s.region.close()
		s.region = nil
	}
}

// giveUp closes the stream. in.mu is held.
func (s *inStream) giveUp() {
	if !s.broken {
		s.broken = true
		notify(s.stop)
		abort(s.conn)
		s.in.changed.Broadcast()
	}
}

// live returns nil if the stream may continue. in.mu is held.
func (s *inStream) live() error {
	if s.in.ended != nil {
		return s.in.ended
	}
	if s.broken {
		return net.ErrClosed
	}
	return nil
}

// interrupt makes the stream check for a canceled message. in.mu is held.
func (s *inStream) interrupt() {
	notify(s.stop)
	_ = s.conn.SetReadDeadline(time.Unix(1, 0))
}

// some reads at least one byte into p. After errInterrupted the stream continues.
func (s *inStream) some(p []byte) (int, error) {
	n, err := s.r.some(p)
	if errors.Is(err, errInterrupted) {
		if err := s.conn.SetReadDeadline(time.Time{}); err != nil {
			return 0, err
		}
	}
	return n, err
}

func (s *inStream) full(p []byte) error {
	for len(p) > 0 {
		n, err := s.some(p)
		if err != nil && !errors.Is(err, errInterrupted) {
			return err
		}
		p = p[n:]
	}
	return nil
}

// run reads frames until the stream ends.
func (s *inStream) run() error {
	if err := s.ackAll(); err != nil {
		return err
	}
	var pre prefix
	var buf [prefixBytes]byte
	for {
		if err := s.full(buf[:]); err != nil {
			return err
		}
		if err := pre.parse(buf[:]); err != nil {
			return err
		}
		if pre.kind == kindAck {
			return fmt.Errorf("%w: an acknowledgment on a stream for messages", errFrame)
		}
		metaBytes := pre.metaBytes()
		s.meta = slices.Grow(s.meta[:0], metaBytes)[:metaBytes]
		if err := s.full(s.meta); err != nil {
			return err
		}
		if s.checksum {
			if err := checkFrame(buf[:], s.meta); err != nil {
				return err
			}
		}
		var err error
		if pre.kind == kindSkip {
			if err = s.skip(pre.seq); err == nil {
				s.acks = append(s.acks, pre.seq)
			}
		} else {
			err = s.data(&pre)
		}
		if err != nil {
			return err
		}
		if cap(s.meta) > limitStripedMeta {
			s.meta = nil // don't keep a rare size
		}
		if s.unacked += int(pre.length); len(s.acks) >= ackMessages || s.unacked >= ackBytes {
			if err := s.flushAcks(); err != nil {
				return err
			}
		}
	}
}

// data reads a piece of a message.
func (s *inStream) data(pre *prefix) error {
	header := s.meta[:pre.headerBytes]
	var err error
	if s.lens, err = parseLens(s.lens[:0], s.meta[pre.headerBytes:], pre.total); err != nil {
		return err
	}
	if pre.flags&flagShared != 0 {
		if s.region == nil || int64(pre.slot) >= int64(s.region.slots()) || pre.length > LimitPiece {
			return fmt.Errorf("%w: %d bytes in slot %[3]d, but the shared region has no slot %[3]d of that size", errFrame, pre.length, pre.slot)
		}
	}
	s.loan = nil
	m, piece, reading, err := s.begin(pre, header, s.lens)
	if err != nil {
		return err
	}
	if m == nil {
		err = s.payload(nil, pre, &reading)
		if err == nil {
			s.ackAgain(pre.seq)
		}
		return err
	}
	err = s.payload(m, pre, &reading)
	if s.end(m, piece, reading, err == nil) {
		s.acks = append(s.acks, pre.seq)
	}
	return err
}

// ackAgain acknowledges a message that was resent although it had arrived.
func (s *inStream) ackAgain(seq uint64) {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	if s.in.hasArrived(seq) {
		s.acks = append(s.acks, seq)
	}
}

// lendable returns the loan that the taker of a message may keep. It is nil unless the whole message is in one slot and
// fewer than limitLoans slots are kept.
func (s *inStream) lendable(pre *prefix) *Loan {
	if pre.flags&flagShared == 0 || pre.length != pre.total || !s.region.kept.room() {
		return nil
	}
	return &Loan{region: s.region, slot: int(pre.slot), memory: s.region.slot(int(pre.slot), int(pre.length))}
}

// payload reads a piece into the message's place while reading is set, and discards the rest.
func (s *inStream) payload(m *inMsg, pre *prefix, reading *bool) error {
	s.list = s.list[:0]
	if *reading && m.place.Pieces != nil {
		return s.through(m, pre, reading)
	}
	if *reading {
		s.list = gather(s.list, m.place.Parts, int(pre.offset), int(pre.length))
		defer func() { clear(s.list) }()
	}
	return s.read(m, pre, reading)
}

// through reads a piece through borrowed memory. Meanwhile another stream, or the kernel, receives the next one.
func (s *inStream) through(m *inMsg, pre *prefix, reading *bool) error {
	if pre.length > LimitPiece {
		return fmt.Errorf("%w: a piece of %d bytes; the place takes pieces of up to %d", errFrame, pre.length, LimitPiece)
	}
	p, err := s.lend(m)
	if p == nil {
		if err == nil && !s.cancelled(m) {
			return net.ErrClosed // the stream is being closed
		}
		if err != nil {
			s.in.fail(m, fmt.Errorf("%w: %w", ErrPieces, err))
		}
		*reading = false
		s.letGo(m)
		return s.read(m, pre, reading)
	}
	defer p.Release()
	s.list = append(s.list, p.Memory()[:pre.length])
	defer func() { clear(s.list) }()
	if err := s.read(m, pre, reading); err != nil || !*reading {
		return err
	}
	p.Copy(int(pre.offset), int(pre.length))
	if err := p.Wait(); err != nil {
		s.in.fail(m, fmt.Errorf("%w: %w", ErrPieces, err))
	}
	return nil
}

// lend waits for memory; nil: the message was canceled, or the stream is being closed. It sends pending acknowledgments
// before it waits.
func (s *inStream) lend(m *inMsg) (Piece, error) {
	p, err := m.place.Pieces.Lend(nil)
	if p != nil || err != nil {
		return p, err
	}
	_ = s.flushAcks() // the next read reports a broken connection
	for {
		if p, err := m.place.Pieces.Lend(s.stop); p != nil || err != nil {
			return p, err
		}
		s.in.mu.Lock()
		stopped := m.discard || s.live() != nil
		s.in.mu.Unlock()
		if stopped {
			return nil, nil
		}
	}
}

// read reads a piece into the list while reading is set, and discards the rest.
func (s *inStream) read(m *inMsg, pre *prefix, reading *bool) error {
	if pre.flags&flagShared != 0 {
		slot := s.region.slot(int(pre.slot), int(pre.length))
		for _, b := range s.list {
			slot = slot[copy(b, slot):]
		}
		if s.loan == nil || !s.loan.kept { // otherwise Loan.Return frees it
			s.region.free(int(pre.slot))
		}
		return nil
	}
	left := int64(pre.length)
	sum := uint64(0)
	list := s.list
	for left > 0 {
		var b []byte
		switch {
		case *reading && len(list[0]) == 0:
			list = list[1:]
			continue
		case *reading:
			b = list[0]
			if s.checksum {
				b = b[:min(len(b), tileBytes)]
			}
		default:
			if s.waste == nil {
				s.waste = make([]byte, wasteBytes)
			}
			b = s.waste[:min(left, wasteBytes)]
		}
		n, err := s.some(b)
		switch {
		case errors.Is(err, errInterrupted):
			if *reading && s.cancelled(m) {
				*reading = false
				s.letGo(m)
			}
			continue
		case err != nil:
			return err
		}
		if s.checksum {
			sum = crc64nvme.Update(sum, b[:n])
		}
		left -= int64(n)
		if *reading {
			list[0] = list[0][n:]
		}
	}
	if !s.checksum {
		return nil
	}
	if err := s.full(s.trailer[:]); err != nil {
		return err
	}
	if want := binary.LittleEndian.Uint64(s.trailer[:]); sum != want {
		return fmt.Errorf("%w: the checksum of %d bytes at offset %d of message %d is %016x, not %016x", errFrame, pre.length, pre.offset,
			pre.seq, sum,
			want)
	}
	return nil
}

// flushAcks sends the pending acknowledgments. It runs before every wait. For a socket it runs while the descriptor is in
// use, so closing the connection waits for it; therefore it takes no lock.
func (s *inStream) flushAcks() error {
	s.unacked = 0
	if len(s.acks) == 0 {
		return nil
	}
	next := s.in.below.Load()
	list := s.acks
	s.acks = s.acks[:0]
	late := list[:0]
	for _, seq := range list {
		if seq >= next {
			late = append(late, seq)
		}
	}
	return s.writeAcks(next, late)
}

// ackAll acknowledges all messages that have arrived, because acknowledgments may have been lost with an older stream.
func (s *inStream) ackAll() error {
	i := s.in
	seq := uint64(0)
	for {
		i.mu.Lock()
		next := i.next
		s.acks, seq = i.arrivedAfter(seq, limitAcks, s.acks[:0])
		end := seq >= i.high
		i.mu.Unlock()
		list := s.acks
		s.acks = s.acks[:0]
		if err := s.writeAcks(next, list); err != nil || end {
			return err
		}
	}
}

func (s *inStream) writeAcks(next uint64, list []uint64) error {
	for first := true; first || len(list) > 0; first = false {
		some := list[:min(len(list), limitAcks)]
		list = list[len(some):]
		pre := prefix{kind: kindAck, seq: next, parts: uint32(len(some))}
		s.ackOut = pre.append(s.ackOut[:0])
		for _, seq := range some {
			s.ackOut = binary.LittleEndian.AppendUint64(s.ackOut, seq)
		}
		if s.checksum {
			sealFrame(s.ackOut)
		}
		if _, err := s.conn.Write(s.ackOut); err != nil {
			return err
		}
	}
	return nil
}
