package lane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/minio/crc64nvme"
)

// outStream is one of the streams to a peer: it dials, writes pieces, and reads acknowledgments, until out.end.
type outStream struct {
	out   *out
	index int

	// guarded by out.mu
	conn   net.Conn // nil: not connected
	broken bool     // conn is being closed
	batch  []outPiece
	ready  bool          // the handshake is complete
	stop   chan struct{} // buffer of 1; signals that the connection is being closed
	shared bool          // payload may go through shared memory

	// used only by the goroutine of run
	w        *batchWriter
	meta     []byte
	list     [][]byte
	due      []outcome
	lefts    []func()
	checksum bool
	region   *region  // nil: none
	owners   []uint64 // by slot of the region: the number of the last message that was copied there
}

// outPiece is a piece that a stream has taken.
type outPiece struct {
	m     *outMsg
	piece int
	skip  bool
	seq   uint64
	lost  bool // its message has failed
	slot  int  // the region's slot with the whole message, from 1; 0: none
	lent  lent // borrowed memory for its payload; used only by the stream's goroutine
}

func newOutStream(o *out, index int) *outStream {
	return &outStream{out: o, index: index, checksum: o.node.config.Checksum, stop: make(chan struct{}, 1)}
}

// notify signals a channel with a buffer of 1.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run dials while there are messages to send, and writes them.
func (s *outStream) run() {
	defer s.out.node.wg.Done()
	wait := s.out.node.redialFirst
	for {
		address, redial, ok := s.awaitReason()
		if !ok {
			return
		}
		began, err := s.connection(address)
		if s.out.ctx.Err() != nil {
			return
		}
		if began {
			wait = s.out.node.redialFirst
		}
		s.out.node.log.warn("stream to a peer broke; it redials",
			"peer", s.out.peer, "address", address, "stream", s.index, "reason", err, "wait_ms", wait.Milliseconds())
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-redial:
		case <-s.out.ctx.Done():
		}
		timer.Stop()
		wait = min(2*wait, redialMax)
	}
}

// awaitReason waits until the peer's address is known and a message waits for its acknowledgment.
func (s *outStream) awaitReason() (address string, redial chan struct{}, ok bool) {
	o := s.out
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.ended == nil && (o.address == "" || o.base == o.next) {
		o.dialable.Wait()
	}
	return o.address, o.redial, o.ended == nil
}

// connection dials once and uses the connection until it ends. began says whether the peer had accepted it.
func (s *outStream) connection(address string) (began bool, err error) {
	o := s.out
	ctx, cancel := context.WithTimeout(o.ctx, o.node.handshakeTimeout)
	conn, err := o.node.config.Dial(ctx, address)
	cancel()
	if err != nil {
		return false, fmt.Errorf("dial: %w", err)
	}
	defer abort(conn)
	limitSilence(conn)
	o.mu.Lock()
	if o.ended != nil || o.address != address {
		o.mu.Unlock()
		return false, errors.New("the peer's address changed during the dial")
	}
	s.conn, s.broken = conn, false
	o.mu.Unlock()

	err = s.handshake(conn)
	if err == nil {
		began = true
		acksEnded := make(chan error, 1)
		go s.readAcks(conn, acksEnded) // ends with conn
		s.w = newBatchWriter(conn)
		err = s.write()
		abort(conn)
		if ackErr := <-acksEnded; err == nil {
			err = ackErr
		}
	}
	o.mu.Lock()
	if s.region != nil {
		if s.ready {
			o.shares.Add(-1)
		}
		s.rescue()
		s.region.close()
		s.region = nil
	}
	s.conn, s.broken, s.ready, s.shared = nil, false, false, false
	o.lost(s.index)
	o.work.Broadcast() // a wake-up that this stream got must reach another one
	o.mu.Unlock()
	return began, err
}

func (s *outStream) handshake(conn net.Conn) error {
	o := s.out
	h := hello{from: o.node.config.Self, to: o.peer, session: o.session, stream: uint8(s.index), streams: uint8(o.node.config.Streams)}
	if s.checksum {
		h.flags |= flagChecksum
	}
	var offer *offer
	if !o.node.config.NoSharedMemory {
		if offer = newOffer(conn); offer != nil {
			defer offer.close()
			h.flags |= flagOffer
			h.offer, h.nonce = offer.name, offer.nonce
		}
	}
	_ = conn.SetDeadline(time.Now().Add(o.node.handshakeTimeout))
	if _, err := conn.Write(h.append(nil)); err != nil {
		return fmt.Errorf("send the handshake: %w", err)
	}
	w, err := readWelcome(conn)
	switch {
	case err != nil:
		return err
	case w.answer != accepted:
		return fmt.Errorf("the peer refused the stream: %v", w.answer)
	case w.self != o.peer:
		return fmt.Errorf("process %v answered instead of %v", w.self, o.peer)
	}
	if w.flags&flagOffer != 0 {
		if offer == nil {
			return fmt.Errorf("%w: the peer accepted shared memory that wasn't offered", errFrame)
		}
		if s.region, err = offer.accepted(); err != nil {
			return fmt.Errorf("pass shared memory to the peer: %w", err)
		}
	}
	o.mu.Lock()
	o.heard = time.Now()
	s.ready, s.shared = true, s.region != nil
	if s.shared {
		s.owners = make([]uint64, s.region.slots())
		o.shares.Add(1)
	}
	o.mu.Unlock()
	return conn.SetDeadline(time.Time{})
}

// write writes pieces until the connection breaks.
func (s *outStream) write() error {
	o := s.out
	for {
		o.mu.Lock()
		for o.head == nil && !s.broken && o.ended == nil {
			o.work.Wait()
		}
		err := s.writeBatch()
		if err == nil && (s.broken || o.ended != nil) {
			err = net.ErrClosed
		}
		due := s.due
		o.mu.Unlock()
		report(due)
		s.due = due[:0]
		if err != nil {
			return err
		}
	}
}

// writeBatch takes pieces and writes them. out.mu is held on entry and exit, but not in between.
func (s *outStream) writeBatch() error {
	o := s.out
	taken := 0
	for len(s.batch) < limitBatchPieces && taken < limitBatchBytes && !s.broken && o.ended == nil {
		m, piece := o.pick(s.index)
		if m == nil {
			break
		}
		s.batch = append(s.batch, outPiece{m: m, piece: piece, skip: m.group == nil, seq: m.seq})
		taken += min(m.piece, m.total) + len(m.header)
	}
	if len(s.batch) == 0 {
		return nil
	}
	o.mu.Unlock()
	var err error
	s.meta = s.meta[:0]
	for i := 0; i < len(s.batch) && err == nil; {
		// m doesn't change while this stream is among its writers.
		p := &s.batch[i]
		if i++; p.m.pieces == nil || p.skip {
			err = s.frame(p)
			continue
		}
		if err = s.through(i - 1); err == nil {
			i = 0 // the pieces up to it are written and removed
		}
	}
	if err == nil {
		err = s.w.flush()
	}
	for i := range s.batch {
		s.batch[i].lent.end()
	}
	o.mu.Lock()
	s.letGo(len(s.batch), err == nil)
	return err
}

// letGo ends the stream's use of the first n messages of the batch, and calls their left functions if they are written.
// out.mu is held on entry and exit, but not in between.
func (s *outStream) letGo(n int, written bool) {
	for i := range s.batch[:n] {
		if p := &s.batch[i]; p.slot > 0 || written {
			if left := s.out.leave(p.m, s.region, p.slot); left != nil {
				s.lefts = append(s.lefts, left)
			}
		}
	}
	if len(s.lefts) > 0 { // before done, which waits for this stream
		s.out.mu.Unlock()
		for _, left := range s.lefts {
			left()
		}
		clear(s.lefts)
		s.lefts = s.lefts[:0]
		s.out.mu.Lock()
	}
	for i := range s.batch[:n] {
		s.due = s.out.release(s.batch[i].m, s.due)
	}
	left := copy(s.batch, s.batch[n:])
	clear(s.batch[left:])
	s.batch = s.batch[:left]
}

// rescue copies the messages that exist only in the region, before it is unmapped. If a message's slot now has another
// message, the receiver has freed the slot, so the message has arrived and the receiver discards its resend. out.mu is
// held.
func (s *outStream) rescue() {
	o := s.out
	for seq := o.base; seq < o.next; seq++ {
		m := o.at(seq)
		if m == nil || m.region != s.region {
			continue
		}
		b := make([]byte, m.total)
		if s.owners[m.slot] == m.seq {
			copy(b, s.region.slot(m.slot, m.total))
		}
		m.place(b)
		m.region = nil
	}
}

// through copies a piece of the batch to borrowed memory, writes it, and ends the use of it and of those before it. The
// copy of the next piece begins before this one is written.
func (s *outStream) through(at int) error {
	o := s.out
	if err := s.lend(&s.batch[at], nil); err != nil {
		return err
	}
	if p := &s.batch[at]; p.lent.Piece == nil && !p.lost {
		if err := s.w.flush(); err != nil { // the pieces before it need not wait
			return err
		}
		if err := s.lend(p, s.stop); err != nil {
			return err
		}
	}
	if at+1 == len(s.batch) {
		o.mu.Lock()
		if !s.broken && o.ended == nil {
			if m, piece := o.pick(s.index); m != nil {
				s.batch = append(s.batch, outPiece{m: m, piece: piece, skip: m.group == nil, seq: m.seq})
			}
		}
		o.mu.Unlock()
	}
	if at+1 < len(s.batch) {
		if err := s.lend(&s.batch[at+1], nil); err != nil {
			return err
		}
	}
	p := &s.batch[at]
	var err error
	if p.lent.Piece != nil { // otherwise its message has failed
		err = p.lent.Wait()
		p.lent.copying = false
		if err != nil {
			s.lose(p, err)
		} else if err = s.frame(p); err == nil {
			err = s.w.flush()
		}
		p.lent.end()
		if err != nil && !p.lost {
			return err
		}
	}
	if err := s.w.flush(); err != nil {
		return err
	}
	s.meta = s.meta[:0]
	o.mu.Lock()
	s.letGo(at+1, true)
	due := s.due
	o.mu.Unlock()
	report(due)
	s.due = due[:0]
	return nil
}

// lend begins to copy a piece's payload to borrowed memory, unless that has begun or no memory is free. It waits for
// memory only if cancel is not nil.
func (s *outStream) lend(p *outPiece, cancel <-chan struct{}) error {
	if p.lent.Piece != nil || p.m.pieces == nil || p.skip {
		return nil
	}
	for {
		piece, err := p.m.pieces.Lend(cancel)
		if err != nil {
			s.lose(p, err)
			return nil
		}
		if piece != nil {
			offset := p.piece * p.m.piece
			piece.Copy(offset, min(p.m.piece, p.m.total-offset))
			p.lent = lent{piece, true}
			return nil
		}
		if cancel == nil {
			return nil
		}
		s.out.mu.Lock()
		stopped := s.broken || s.out.ended != nil
		s.out.mu.Unlock()
		if stopped {
			return net.ErrClosed
		}
	}
}

// lose fails a message whose payload can't be copied.
func (s *outStream) lose(p *outPiece, err error) {
	p.lost = true
	o := s.out
	o.mu.Lock()
	s.due = o.fail(p.m, fmt.Errorf("%w: %w", ErrPieces, err), s.due)
	o.mu.Unlock()
}

// frame adds a piece to the batch writer, and flushes large payloads in between.
func (s *outStream) frame(p *outPiece) error {
	m := p.m
	if p.skip {
		s.frameMeta(&prefix{kind: kindSkip, seq: p.seq}, &outMsg{})
		return nil
	}
	offset := p.piece * m.piece
	n := min(m.piece, m.total-offset)
	pre := prefix{kind: kindData, seq: p.seq, group: m.group.id, total: uint64(m.total), offset: uint64(offset), length: uint64(n),
		headerBytes: uint32(len(m.header)), parts: uint32(len(m.parts))}
	if m.pieces != nil {
		pre.parts = 1
	}
	if m.total > m.piece {
		pre.flags |= flagStriped
	}
	if s.region != nil && n >= m.least && n <= LimitPiece {
		if slot, ok := s.region.take(); ok {
			pre.flags |= flagShared
			pre.slot = uint32(slot)
			s.payload(p, offset, n)
			s.region.fill(slot, s.list)
			s.owners[slot] = m.seq
			if clear(s.list); n == m.total {
				p.slot = slot + 1
			}
			s.frameMeta(&pre, m)
			return s.w.flush() // at once, so that the receiver copies this piece while the next one is copied in
		}
	}
	s.frameMeta(&pre, m)
	s.payload(p, offset, n)
	defer func() { clear(s.list) }()
	if !s.checksum {
		for _, b := range s.list {
			s.w.add(b)
		}
		return nil
	}
	sum := uint64(0)
	for _, b := range s.list {
		for len(b) > 0 {
			if s.w.bytes >= tileBytes {
				if err := s.w.flush(); err != nil {
					return err
				}
			}
			tile := b[:min(len(b), tileBytes)]
			b = b[len(tile):]
			sum = crc64nvme.Update(sum, tile)
			s.w.add(tile)
		}
	}
	s.meta = binary.LittleEndian.AppendUint64(s.meta, sum)
	s.w.add(s.meta[len(s.meta)-sumBytes:])
	return nil
}

// payload lists the slices with n bytes from offset on of a piece's message.
func (s *outStream) payload(p *outPiece, offset, n int) {
	s.list = s.list[:0]
	if p.m.pieces == nil {
		s.list = gather(s.list, p.m.parts, offset, n)
	} else if n > 0 {
		s.list = append(s.list, p.lent.Memory()[:n])
	}
}

// frameMeta adds prefix, header and lengths. They are in s.meta, which may be reallocated as it grows; slices
// that were added before stay valid.
func (s *outStream) frameMeta(pre *prefix, m *outMsg) {
	s.meta = slices.Grow(s.meta, prefixBytes+len(m.header)+lenBytes*int(pre.parts)+sumBytes)
	start := len(s.meta)
	s.meta = pre.append(s.meta)
	s.meta = append(s.meta, m.header...)
	for _, part := range m.parts {
		s.meta = binary.LittleEndian.AppendUint64(s.meta, uint64(len(part)))
	}
	if m.pieces != nil {
		s.meta = binary.LittleEndian.AppendUint64(s.meta, uint64(m.total))
	}
	if s.checksum {
		sealFrame(s.meta[start:])
	}
	s.w.add(s.meta[start:])
}

// readAcks reads acknowledgments until the connection ends.
func (s *outStream) readAcks(conn net.Conn, ended chan<- error) {
	err := s.acks(newFrameReader(conn, func() error { return nil }, &s.out.node.sleepers))
	o := s.out
	o.mu.Lock()
	if s.conn == conn {
		s.broken = true
		notify(s.stop)
	}
	o.work.Broadcast()
	o.mu.Unlock()
	abort(conn) // a write may be waiting
	ended <- err
}

func (s *outStream) acks(r *frameReader) error {
	var pre prefix
	var buf [prefixBytes + limitAcks*lenBytes]byte
	var due []outcome
	list := make([]uint64, 0, limitAcks)
	for {
		if err := readFull(r, buf[:prefixBytes]); err != nil {
			return fmt.Errorf("read acknowledgments: %w", err)
		}
		if err := pre.parse(buf[:prefixBytes]); err != nil {
			return err
		}
		if pre.kind != kindAck {
			return fmt.Errorf("%w: a frame of kind %d; want an acknowledgment", errFrame, pre.kind)
		}
		numbers := buf[prefixBytes : prefixBytes+pre.metaBytes()]
		if err := readFull(r, numbers); err != nil {
			return fmt.Errorf("read acknowledgments: %w", err)
		}
		if s.checksum {
			if err := checkFrame(buf[:prefixBytes], numbers); err != nil {
				return err
			}
		}
		list = list[:0]
		for i := 0; i < len(numbers); i += lenBytes {
			list = append(list, binary.LittleEndian.Uint64(numbers[i:]))
		}
		var err error
		due, err = s.out.acknowledge(pre.seq, list, due)
		report(due)
		due = due[:0]
		if err != nil {
			return err
		}
	}
}

// readFull fills p.
func readFull(r *frameReader, p []byte) error {
	for len(p) > 0 {
		n, err := r.some(p)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}
