package transport

import (
	"crypto/tls"
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
	shaking   bool                 // under admission.mu
	state     *tls.ConnectionState // with a verified certificate; under admission.mu
	once      sync.Once
}

// shown keeps what the other side has shown, for recheck.
func (c *admitted) shown(state tls.ConnectionState) {
	c.admission.mu.Lock()
	defer c.admission.mu.Unlock()
	if len(state.VerifiedChains) > 0 {
		c.state = &state
	}
}

// Recheck closes the connections of those whose certificates Identify accepts no more.
func (t *TCP) Recheck() {
	a := t.admission
	a.mu.Lock()
	shown := make(map[*admitted]*tls.ConnectionState)
	for c := range a.open {
		if c.state != nil {
			shown[c] = c.state
		}
	}
	a.mu.Unlock()
	for c, state := range shown {
		if _, err := t.identify(*state, c.RemoteAddr()); err != nil {
			_ = c.Close()
			t.refuse(c.RemoteAddr(), fmt.Errorf("closed: %w", err))
		}
	}
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
