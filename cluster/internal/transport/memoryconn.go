package transport

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// limitMemoryConn bounds the bytes that a stream of Memory buffers in each direction, as sockets do.
const limitMemoryConn = 256 << 10

// memoryConn is one end of a stream of a Memory. One lock guards both ends.
type memoryConn struct {
	net           *Memory
	shared        *memoryShared
	in, out       *memoryHalf
	local, remote memoryAddr
	between       pair

	closed                bool // guarded by shared.mu, like the deadlines
	killed                bool // its process has ended
	readUntil, writeUntil memoryDeadline
}

type memoryAddr struct{ name string }

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return a.name }

// memoryShared is the state that both ends wait on.
type memoryShared struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced when anything changes
	blocked bool
	broken  bool
}

func (s *memoryShared) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// memoryHalf is one direction.
type memoryHalf struct {
	data []byte
	end  bool // the writer has closed
	gone bool // the reader has closed
}

// memoryDeadline is a deadline, with a timer that wakes waiting goroutines.
type memoryDeadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *memoryDeadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *memoryDeadline) set(at time.Time, s *memoryShared) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
	if !at.IsZero() {
		d.timer = time.AfterFunc(time.Until(at), func() { // ends on its own, or with Close
			s.mu.Lock()
			defer s.mu.Unlock()
			s.wake()
		})
	}
	s.wake()
}

// newMemoryConns is called under n.mu.
func newMemoryConns(n *Memory, a, b string) (x, y *memoryConn) {
	s := &memoryShared{changed: make(chan struct{})}
	there, back := new(memoryHalf), new(memoryHalf)
	x = &memoryConn{net: n, shared: s, in: back, out: there, local: memoryAddr{a}, remote: memoryAddr{b}, between: pairOf(a, b)}
	y = &memoryConn{net: n, shared: s, in: there, out: back, local: memoryAddr{b}, remote: memoryAddr{a}, between: pairOf(a, b)}
	n.conns[x], n.conns[y] = struct{}{}, struct{}{}
	return x, y
}

func (c *memoryConn) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "memory", Source: c.local, Addr: c.remote, Err: err}
}

func (c *memoryConn) Read(p []byte) (int, error) {
	s := c.shared
	for {
		s.mu.Lock()
		var err error
		switch {
		case c.closed || c.killed:
			err = net.ErrClosed
		case c.readUntil.passed():
			err = os.ErrDeadlineExceeded
		case len(p) == 0:
			s.mu.Unlock()
			return 0, nil
		case s.broken && !s.blocked:
			err = syscall.ECONNRESET
		case s.blocked: // nothing arrives
		case len(c.in.data) > 0:
			n := copy(p, c.in.data)
			c.in.data = c.in.data[n:]
			s.wake()
			s.mu.Unlock()
			return n, nil
		case c.in.end:
			s.mu.Unlock()
			return 0, io.EOF
		}
		changed := s.changed
		s.mu.Unlock()
		if err != nil {
			return 0, c.fail("read", err)
		}
		<-changed
	}
}

func (c *memoryConn) Write(p []byte) (written int, err error) {
	s := c.shared
	for {
		s.mu.Lock()
		var err error
		switch {
		case c.closed || c.killed:
			err = net.ErrClosed
		case c.writeUntil.passed():
			err = os.ErrDeadlineExceeded
		case s.broken && !s.blocked:
			err = syscall.ECONNRESET
		case c.out.end || c.out.gone && !s.blocked:
			err = syscall.EPIPE
		default:
			n := min(limitMemoryConn-len(c.out.data), len(p))
			if n > 0 {
				c.out.data = append(c.out.data, p[:n]...)
				p = p[n:]
				written += n
				s.wake()
			}
		}
		changed := s.changed
		s.mu.Unlock()
		switch {
		case err != nil:
			return written, c.fail("write", err)
		case len(p) == 0:
			return written, nil
		}
		<-changed
	}
}

// CloseWrite ends the data that the other side reads.
func (c *memoryConn) CloseWrite() error {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	c.out.end = true
	c.shared.wake()
	return nil
}

func (c *memoryConn) Close() error {
	c.net.mu.Lock()
	delete(c.net.conns, c)
	c.net.mu.Unlock()
	s := c.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.closed {
		return c.fail("close", net.ErrClosed)
	}
	c.closed, c.out.end, c.in.gone = true, true, true
	c.readUntil.set(time.Time{}, s)
	c.writeUntil.set(time.Time{}, s)
	return nil
}

// reset breaks both ends. Each end must still be closed, and stays listed until then: a partitioned
// end sees the break after the partition. It is called under net.mu. kill says that the process of
// this end has exited, which it sees at once.
func (c *memoryConn) reset(kill bool) {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	c.killed = c.killed || kill
	c.shared.broken = true
	c.shared.wake()
}

func (c *memoryConn) setBlocked(blocked bool) {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	c.shared.blocked = blocked
	c.shared.wake()
}

func (c *memoryConn) LocalAddr() net.Addr  { return c.local }
func (c *memoryConn) RemoteAddr() net.Addr { return c.remote }

func (c *memoryConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *memoryConn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.readUntil, t) }

func (c *memoryConn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writeUntil, t) }

func (c *memoryConn) setDeadline(d *memoryDeadline, t time.Time) error {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	if c.closed {
		return c.fail("set", net.ErrClosed)
	}
	d.set(t, c.shared)
	return nil
}
