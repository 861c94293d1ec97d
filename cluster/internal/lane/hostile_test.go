package lane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// stranger speaks the protocol without a node.
type stranger struct {
	t    testing.TB
	conn net.Conn
}

func helloTo(n *Node, session uint64) hello {
	return hello{from: idOf("stranger"), to: n.config.Self, session: session, streams: 2}
}

// shake does the handshake and reads the first acknowledgment.
func (s stranger) shake(h hello) {
	s.t.Helper()
	s.write(h.append(nil))
	w, err := readWelcome(s.conn)
	if err != nil || w.answer != accepted {
		s.t.Fatalf("the answer is %v, %v", w.answer, err)
	}
	s.ack()
}

func (s stranger) write(b []byte) {
	s.t.Helper()
	if _, err := s.conn.Write(b); err != nil {
		s.t.Fatal(err)
	}
}

func (s stranger) ack() prefix {
	s.t.Helper()
	var b [prefixBytes]byte
	if _, err := io.ReadFull(s.conn, b[:]); err != nil {
		s.t.Fatal(err)
	}
	var p prefix
	if err := p.parse(b[:]); err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, s.conn, int64(p.metaBytes())); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// ended waits until the node closes the connection.
func (s stranger) ended() {
	s.t.Helper()
	_ = s.conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, s.conn); errors.Is(err, os.ErrDeadlineExceeded) {
		s.t.Error("the stream is still open")
	}
	_ = s.conn.Close()
}

// meet connects a stranger to a node.
func (w *world) meet(t testing.TB, name string) stranger {
	conn, err := w.dial(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return stranger{t, conn}
}

// dataFrame is a message of one part.
func dataFrame(seq uint64, group ID, header []byte, n int) []byte {
	p := prefix{kind: kindData, seq: seq, group: group, total: uint64(n), length: uint64(n), headerBytes: uint32(len(header)), parts: 1}
	return binary.LittleEndian.AppendUint64(append(p.append(nil), header...), uint64(n))
}

// TestStrangers: invalid data instead of a handshake or a frame ends only that stream.
func TestStrangers(t *testing.T) {
	w := newWorld(t, tcpLink(t))
	defer w.close()
	a, b, c := w.node("a", Config{}), w.node("b", Config{}), w.node("c", Config{})
	b.handshakeTimeout, c.handshakeTimeout = 100*time.Millisecond, patience
	changed := func(change func(h *hello)) []byte {
		h := helloTo(b, 1)
		change(&h)
		return h.append(nil)
	}
	edited := func(at int, value byte) []byte {
		raw := changed(func(*hello) {})
		raw[at] = value
		return raw
	}
	for name, raw := range map[string][]byte{
		"silence":            nil,
		"HTTP":               []byte("GET / HTTP/1.1\r\nHost: b\r\n\r\n" + string(make([]byte, 200))),
		"half a hello":       changed(func(*hello) {})[:80],
		"another version":    edited(4, 99),
		"a wrong checksum":   edited(20, 1),
		"another process":    changed(func(h *hello) { h.to = ID{5} }),
		"session 0":          changed(func(h *hello) { h.session = 0 }),
		"stream beyond":      changed(func(h *hello) { h.stream = 2 }),
		"17 streams":         changed(func(h *hello) { h.streams = 17 }),
		"unknown flags":      changed(func(h *hello) { h.flags = 0x80 }),
		"a frame of data":    append(dataFrame(1, ID{1}, nil, 10), make([]byte, 100)...),
		"an offer elsewhere": changed(func(h *hello) { h.flags |= flagOffer; h.offer = "/run/other.sock"; h.to = ID{5} }),
	} {
		t.Run(name, func(t *testing.T) {
			s := w.meet(t, "b")
			s.write(raw)
			s.ended()
		})
	}
	frame := func(change func(p *prefix)) []byte {
		p := prefix{kind: kindData, seq: 1, total: 10, length: 10, parts: 1}
		change(&p)
		return append(p.append(nil), make([]byte, 100)...)
	}
	session := uint64(10)
	for name, raw := range map[string][]byte{
		"nonsense":             bytes.Repeat([]byte{0xAB}, 500),
		"a header too long":    frame(func(p *prefix) { p.headerBytes = LimitHeaderBytes + 1 }),
		"too many parts":       frame(func(p *prefix) { p.parts = LimitParts + 1 }),
		"a payload too long":   frame(func(p *prefix) { p.total = LimitPayloadBytes + 1; p.length = p.total }),
		"lengths that differ":  frame(func(*prefix) {}),
		"a piece outside":      frame(func(p *prefix) { p.flags = flagStriped; p.offset = LimitPiece; p.total = 2 * LimitPiece }),
		"message 0":            append(dataFrame(0, ID{1}, nil, 10), make([]byte, 10)...),
		"a message far ahead":  append(dataFrame(LimitPending+1, ID{1}, nil, 10), make([]byte, 10)...),
		"acknowledgements":     frame(func(p *prefix) { *p = prefix{kind: kindAck, seq: 1} }),
		"a slot of no region":  frame(func(p *prefix) { p.flags = flagShared; p.total, p.length, p.parts = 0, 0, 0 }),
		"a skip with payload":  frame(func(p *prefix) { p.kind = kindSkip }),
		"an unknown kind":      frame(func(p *prefix) { p.kind = 77 }),
		"a skip far ahead":     frame(func(p *prefix) { *p = prefix{kind: kindSkip, seq: 1 << 60} }),
		"another hello":        changed(func(*hello) {}),
		"striped but in a row": frame(func(p *prefix) { p.flags = flagStriped }),
	} {
		t.Run(name, func(t *testing.T) {
			s := w.meet(t, "c")
			session++
			s.shake(helloTo(c, session))
			s.write(raw)
			s.ended()
		})
	}
	// They work as before.
	g := a.Open(ID{1}, nil)
	for name, node := range map[string]*Node{"b": b, "c": c} {
		a.SetPeer(idOf(name), name)
		got, acked := make(chan arrival, 1), make(chan error, 1)
		node.Open(ID{1}, collect(got))
		g.Send(idOf(name), nil, [][]byte{{1, 2, 3}}, func(err error) { acked <- err })
		if m := wait(t, got); m.err != nil || len(m.parts) != 1 || wait(t, acked) != nil {
			t.Errorf("a message to %s after all that: %+v", name, m)
		}
	}
}

// TestSessions: older and forgotten sessions are refused; a newer one starts afresh.
func TestSessions(t *testing.T) {
	w := newWorld(t, tcpLink(t))
	defer w.close()
	b := w.node("b", Config{})
	answer := func(session uint64) refusal {
		s := w.meet(t, "b")
		h := helloTo(b, session)
		s.write(h.append(nil))
		r, err := readWelcome(s.conn)
		if err != nil {
			t.Fatal(err)
		}
		return r.answer
	}
	for k, step := range []struct {
		forget  bool
		session uint64
		want    refusal
	}{
		{false, 5, accepted}, {false, 5, accepted}, {false, 4, refusedSession}, {false, 6, accepted}, {false, 5, refusedSession},
		{true, 6, refusedSession}, {false, 5, refusedSession}, {false, 7, accepted},
	} {
		if step.forget {
			b.Forget(idOf("stranger"))
		}
		if got := answer(step.session); got != step.want {
			t.Errorf("step %d, session %d: %v, not %v", k, step.session, got, step.want)
		}
	}
}

// TestCloseWhileReceiving: closing a group during a payload frees its memory at once. The rest of the payload is discarded, and
// the stream continues.
func TestCloseWhileReceiving(t *testing.T) {
	w := newWorld(t, tcpLink(t))
	defer w.close()
	b := w.node("b", Config{})
	got := make(chan arrival, 1)
	var parts [][]byte
	taken := make(chan struct{}, 1)
	g := b.Open(ID{1}, func(_ ID, _ []byte, lens []int) ([][]byte, func(error), error) {
		parts = [][]byte{make([]byte, lens[0])}
		taken <- struct{}{}
		return parts, func(err error) { got <- arrival{err: err} }, nil
	})
	s := w.meet(t, "b")
	s.shake(helloTo(b, 1))
	const n = 200_000
	s.write(dataFrame(1, ID{1}, []byte("header"), n))
	s.write(make([]byte, n/2))
	wait(t, taken)
	g.Close()
	if m := wait(t, got); !errors.Is(m.err, ErrClosed) {
		t.Errorf("done was called with %v", m.err)
	}
	poison(parts)
	s.write(make([]byte, n/2))
	if p := s.ack(); p.seq != 2 {
		t.Errorf("all below %d is acknowledged, not below 2", p.seq)
	}
	if !bytes.Equal(parts[0][:1000], poisonBytes[:1000]) || !bytes.Equal(parts[0][n-1000:], poisonBytes[:1000]) {
		t.Error("memory was written after Close")
	}
}

// TestCloseWhileSending: a peer that doesn't read doesn't delay Close.
func TestCloseWhileSending(t *testing.T) {
	link := tcpLink(t)
	a := New(Config{Self: idOf("a"), NoSharedMemory: true})
	defer a.Close()
	peer := make(chan net.Conn, 10)
	a.config.Dial = dialFunc(func() net.Conn {
		dialled, accepted := link()
		peer <- accepted
		return dialled
	})
	a.SetPeer(idOf("b"), "b")
	g := a.Open(ID{1}, nil)
	parts := [][]byte{make([]byte, 64<<20)}
	ended := make(chan error, 1)
	g.Send(idOf("b"), nil, parts, func(err error) { ended <- err })
	conn := wait(t, peer)
	if _, err := readHello(conn); err != nil {
		t.Fatal(err)
	}
	answer := welcome{self: idOf("b")}
	if _, err := conn.Write(answer.append(nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	g.Close()
	poison(parts)
	if err := wait(t, ended); !errors.Is(err, ErrClosed) {
		t.Errorf("done was called with %v", err)
	}
	_ = conn.Close()
	a.Close()
	for len(peer) > 0 {
		_ = (<-peer).Close()
	}
}

// TestMoves: a peer that moved to another address gets the queued messages; an absent one is forgotten.
func TestMoves(t *testing.T) {
	w := newWorld(t, tcpLink(t))
	defer w.close()
	a, b := w.node("a", Config{}), w.node("b", Config{})
	a.redialFirst = time.Millisecond
	w.node("c", Config{})
	got, acked := make(chan arrival, 1), make(chan error, 1)
	b.Open(ID{1}, collect(got))
	g := a.Open(ID{1}, nil)
	send := func() {
		g.Send(idOf("b"), nil, [][]byte{make([]byte, 100_000)}, func(err error) { acked <- err })
	}
	send() // no address yet
	a.SetPeer(idOf("b"), "nowhere")
	a.SetPeer(idOf("b"), "c") // another process answers there
	a.SetPeer(idOf("b"), "b")
	if m := wait(t, got); m.err != nil || wait(t, acked) != nil {
		t.Errorf("after moving: %v", m.err)
	}
	stats := a.Stats()
	if len(stats.Peers) != 1 || stats.Peers[0].MessagesOut != 1 || stats.Peers[0].BytesOut != 100_000 || stats.Peers[0].Queued != 0 {
		t.Errorf("stats %+v", stats)
	}
	a.SetPeer(idOf("b"), "nowhere")
	send()
	a.Forget(idOf("b"))
	if err := wait(t, acked); !errors.Is(err, ErrGone) {
		t.Errorf("to a peer that is gone: %v", err)
	}
	// It is told of the peer again: a new session.
	a.SetPeer(idOf("b"), "b")
	send()
	if m := wait(t, got); m.err != nil || wait(t, acked) != nil {
		t.Errorf("in a new session: %v", m.err)
	}
}
