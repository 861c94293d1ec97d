package transport

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// admission counts what others have open here, and can close it all.
type admission struct {
	mu         sync.Mutex
	closed     bool
	open       map[*admitted]struct{}
	perAddress map[netip.Addr]int
	handshakes int
}

func newAdmission() *admission {
	return &admission{open: make(map[*admitted]struct{}), perAddress: make(map[netip.Addr]int)}
}

// admitted is a connection that counts until it is closed. It embeds a *net.TCPConn, and no
// net.Conn, so that net.Buffers are written to it by one system call.
type admitted struct {
	*net.TCPConn
	admission *admission
	from      netip.Addr
	shaking   bool // under admission.mu
	once      sync.Once
}

// admit takes a connection in, or says why not; then it is the caller's to close.
func (a *admission) admit(raw net.Conn) (*admitted, error) {
	tcp, ok := raw.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("a connection of type %T; want TCP", raw)
	}
	c := &admitted{TCPConn: tcp, admission: a, from: source(raw.RemoteAddr()), shaking: true}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return nil, ErrClosed
	case len(a.open) >= LimitConnections:
		return nil, fmt.Errorf("%w: %d are open, the limit", errBusy, LimitConnections)
	case a.perAddress[c.from] >= LimitConnectionsPerAddress:
		return nil, fmt.Errorf("%w: %d from %v are open, the limit", errBusy, LimitConnectionsPerAddress, c.from)
	case a.handshakes >= LimitHandshakes:
		return nil, fmt.Errorf("%w: %d have not said yet who they are, the limit", errBusy, LimitHandshakes)
	}
	a.open[c] = struct{}{}
	a.perAddress[c.from]++
	a.handshakes++
	return c, nil
}

// source is what LimitConnectionsPerAddress counts by: who has one address of IPv6 has its /64.
func source(addr net.Addr) netip.Addr {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return ip
}

// shaken ends the handshake.
func (c *admitted) shaken() {
	c.admission.mu.Lock()
	defer c.admission.mu.Unlock()
	if c.shaking {
		c.shaking = false
		c.admission.handshakes--
	}
}

func (c *admitted) Close() error {
	c.once.Do(func() {
		c.shaken()
		a := c.admission
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.open, c)
		if a.perAddress[c.from]--; a.perAddress[c.from] == 0 {
			delete(a.perAddress, c.from)
		}
	})
	return c.TCPConn.Close()
}

// close closes all, and admits nothing any more.
func (a *admission) close() {
	a.mu.Lock()
	a.closed = true
	open := make([]*admitted, 0, len(a.open))
	for c := range a.open {
		open = append(open, c)
	}
	a.mu.Unlock()
	for _, c := range open {
		_ = c.Close() // what it says of a connection that nobody wants is of no use
	}
}
