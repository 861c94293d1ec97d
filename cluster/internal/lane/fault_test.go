package lane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// half is one direction of a connection in memory: a buffer as a socket has one, that can be cut after so many bytes. What
// was written before the cut can still be read, as on TCP.
type half struct {
	mu      sync.Mutex
	changed sync.Cond
	buf     []byte // in whole
	whole   []byte
	size    int
	left    int // bytes until the cut; negative: never
	cut     func()
	ended   bool // by the writer, or the cut
	dropped bool // by the reader
	read    deadline
	write   deadline
}

type deadline struct {
	passed bool
	timer  *time.Timer
	round  int
}

func (h *half) setDeadline(d *deadline, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.round++
	d.passed = false
	if at.IsZero() {
		return
	}
	if wait := time.Until(at); wait > 0 {
		round := d.round
		d.timer = time.AfterFunc(wait, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if d.round == round {
				d.passed = true
				h.changed.Broadcast()
			}
		})
		return
	}
	d.passed = true
	h.changed.Broadcast()
}

func (h *half) Read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.dropped:
			return 0, net.ErrClosed
		case h.read.passed:
			return 0, os.ErrDeadlineExceeded
		case len(h.buf) > 0:
			n := copy(p, h.buf)
			if h.buf = h.buf[n:]; len(h.buf) == 0 {
				h.buf = h.whole[:0]
			}
			h.changed.Broadcast()
			return n, nil
		case h.ended:
			return 0, io.EOF
		}
		h.changed.Wait()
	}
}

func (h *half) Write(p []byte) (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(p) > 0 {
		switch room := h.size - len(h.buf); {
		case h.ended || h.dropped:
			return n, io.ErrClosedPipe
		case h.write.passed:
			return n, os.ErrDeadlineExceeded
		case room == 0:
			h.changed.Wait()
		default:
			k := min(room, len(p))
			if h.left >= 0 {
				k = min(k, h.left)
				h.left -= k
			}
			if cap(h.buf)-len(h.buf) < k {
				if h.whole == nil {
					h.whole = make([]byte, 0, h.size)
				}
				h.buf = append(h.whole[:0], h.buf...) // to the front
			}
			h.buf = append(h.buf, p[:k]...)
			p, n = p[k:], n+k
			h.changed.Broadcast()
			if h.left == 0 {
				h.ended = true
				h.mu.Unlock()
				h.cut()
				h.mu.Lock()
			}
		}
	}
	return n, nil
}

// end ends the writer's side, or the reader's.
func (h *half) end(writer bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if writer {
		h.ended = true
	} else {
		h.dropped = true
	}
	if h.read.timer != nil {
		h.read.timer.Stop()
	}
	if h.write.timer != nil {
		h.write.timer.Stop()
	}
	h.changed.Broadcast()
}

// memConn is an end of a connection in memory.
type memConn struct {
	in, out *half
	slow    func() // before each read
}

func (c *memConn) Read(p []byte) (int, error)  { c.slow(); return c.in.Read(p) }
func (c *memConn) Write(p []byte) (int, error) { return c.out.Write(p) }
func (c *memConn) Close() error                { c.in.end(false); c.out.end(true); return nil }
func (c *memConn) LocalAddr() net.Addr         { return memAddr{} }
func (c *memConn) RemoteAddr() net.Addr        { return memAddr{} }
func (c *memConn) SetDeadline(at time.Time) error {
	_ = c.SetReadDeadline(at)
	return c.SetWriteDeadline(at)
}
func (c *memConn) SetReadDeadline(at time.Time) error {
	c.in.setDeadline(&c.in.read, at)
	return nil
}
func (c *memConn) SetWriteDeadline(at time.Time) error {
	c.out.setDeadline(&c.out.write, at)
	return nil
}

type memAddr struct{}

func (memAddr) Network() string { return "memory" }
func (memAddr) String() string  { return "memory" }

// faults makes connections of which some are cut after a random number of bytes.
type faults struct {
	mu    sync.Mutex
	r     *rand.Rand
	cuts  int // connections that will still be cut
	after int // at most so many bytes
	slow  bool
	tcp   func() (net.Conn, net.Conn) // nil: in memory
	tls   bool
	wg    sync.WaitGroup
}

func (f *faults) draw(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.r.IntN(n)
}

func (f *faults) nextCut() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cuts == 0 {
		return -1
	}
	f.cuts--
	return 1 + f.r.IntN(f.after)
}

func (f *faults) link() (dialled, accepted net.Conn) {
	if f.tcp != nil {
		return f.tcpLink()
	}
	there, back := f.half(), f.half()
	a := &memConn{in: back, out: there, slow: f.delay}
	b := &memConn{in: there, out: back, slow: f.delay}
	cut := func() { // as if the network had gone away: nothing more gets in, what is under way still arrives
		there.end(true)
		back.end(true)
	}
	there.cut, back.cut = cut, cut
	if there.left = f.nextCut(); there.left > 0 && f.draw(4) == 0 {
		there.left, back.left = -1, 1+f.draw(300) // acknowledgements are lost
	}
	return a, b
}

func (f *faults) half() *half {
	h := &half{size: 1 + f.draw(200_000), left: -1}
	h.changed.L = &h.mu
	return h
}

func (f *faults) delay() {
	if f.slow && f.draw(20) == 0 {
		time.Sleep(time.Duration(f.draw(300)) * time.Microsecond)
	}
}

// tcpLink cuts real connections after a random time, at either end.
func (f *faults) tcpLink() (dialled, accepted net.Conn) {
	dialled, accepted = f.tcp()
	if f.nextCut() > 0 {
		victim, after := dialled, time.Duration(f.draw(3000))*time.Microsecond
		if f.draw(3) == 0 {
			victim = accepted
		}
		f.wg.Add(1)
		time.AfterFunc(after, func() { _ = victim.Close(); f.wg.Done() })
	}
	if f.tls {
		return tls.Client(dialled, &tls.Config{InsecureSkipVerify: true}), tls.Server(accepted, serverTLS())
	}
	return dialled, accepted
}

// serverTLS is a configuration with a certificate of its own.
var serverTLS = sync.OnceValue(func() *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(cryptorand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
})
