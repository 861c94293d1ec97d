package transport

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// admission counts the connections that other processes have opened here, and can close them all. Identified processes
// count separately from strangers, so that no number of strangers can keep them out.
type admission struct {
	anybody        bool // without TLS: a process that has named its protocol is not a stranger
	most           int  // limit of connections
	mostStrangers  int
	mostPerAddress int // limit for identified processes, and for strangers

	mu        sync.Mutex
	closed    bool
	number    uint64 // of the last connection
	open      map[*admitted]struct{}
	known     map[netip.Addr]int
	strangers map[netip.Addr]map[*admitted]struct{}
	strange   int // strangers from all addresses
}

func newAdmission(anybody bool, files uint64) *admission {
	most := LimitConnections
	if files < LimitConnections+filesKept {
		most = int(files - min(filesKept, files/2))
	}
	return &admission{anybody: anybody, most: most, mostStrangers: min(LimitStrangers, max(1, most/4)),
		mostPerAddress: LimitConnectionsPerAddress,
		open:           make(map[*admitted]struct{}), known: make(map[netip.Addr]int), strangers: make(map[netip.Addr]map[*admitted]struct{})}
}

// admitted is a connection that counts until it is closed. It embeds a *net.TCPConn rather than a
// net.Conn, so that net.Buffers are written with one system call.
type admitted struct {
	*net.TCPConn
	admission *admission
	from      netip.Addr
	number    uint64               // in the order of admission
	strange   bool                 // guarded by admission.mu
	state     *tls.ConnectionState // with a verified certificate; guarded by admission.mu
	once      sync.Once
}

// shown keeps the other side's TLS state for Recheck. If the other side has shown a certificate, it is not
// a stranger any more.
func (c *admitted) shown(state tls.ConnectionState) error {
	c.admission.mu.Lock()
	defer c.admission.mu.Unlock()
	if len(state.VerifiedChains) == 0 {
		return nil
	}
	c.state = &state
	return c.introduce()
}

// introduce counts a connection as one of an identified process. admission.mu is held.
func (c *admitted) introduce() error {
	a := c.admission
	if !c.strange {
		return nil
	}
	if n := a.known[c.from]; n >= a.mostPerAddress {
		return fmt.Errorf("%w: %d from %v are open, the limit", errBusy, n, c.from)
	}
	c.unstrange()
	a.known[c.from]++
	return nil
}

// unstrange stops counting a connection as a stranger. admission.mu is held.
func (c *admitted) unstrange() {
	a := c.admission
	c.strange = false
	a.strange--
	if delete(a.strangers[c.from], c); len(a.strangers[c.from]) == 0 {
		delete(a.strangers, c.from)
	}
}

// oldest returns the oldest stranger from an address, or, if from is nil, from the address with the most strangers. mu is
// held.
func (a *admission) oldest(from *netip.Addr) (oldest *admitted) {
	of := a.strangers[netip.Addr{}]
	if from != nil {
		of = a.strangers[*from]
	} else {
		for _, all := range a.strangers {
			if len(all) > len(of) {
				of = all
			}
		}
	}
	for c := range of {
		if oldest == nil || c.number < oldest.number {
			oldest = c
		}
	}
	return oldest
}

// Recheck closes the connections of processes whose certificates Identify no longer accepts.
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
			t.refuse(c.RemoteAddr(), fmt.Errorf("closed an open connection: %w", err))
		}
	}
}

// admit admits a connection, or returns why not; then the caller closes it.
func (a *admission) admit(raw net.Conn) (*admitted, error) {
	tcp, ok := raw.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("the connection has type %T; want TCP", raw)
	}
	c := &admitted{TCPConn: tcp, admission: a, from: source(raw.RemoteAddr()), strange: true}
	a.mu.Lock()
	var drop *admitted
	switch {
	case a.closed:
		a.mu.Unlock()
		return nil, ErrClosed
	case len(a.strangers[c.from]) >= a.mostPerAddress:
		drop = a.oldest(&c.from)
	case a.strange >= a.mostStrangers:
		drop = a.oldest(nil)
	case len(a.open) >= a.most:
		if drop = a.oldest(nil); drop == nil {
			a.mu.Unlock()
			return nil, fmt.Errorf("%w: %d are open, the limit", errBusy, a.most)
		}
	}
	a.number++
	c.number = a.number
	a.open[c] = struct{}{}
	if a.strangers[c.from] == nil {
		a.strangers[c.from] = make(map[*admitted]struct{})
	}
	a.strangers[c.from][c] = struct{}{}
	a.strange++
	a.mu.Unlock()
	if drop != nil {
		_ = drop.Close() // it has not identified itself
	}
	return c, nil
}

// source returns the address that LimitConnectionsPerAddress counts by: for IPv6 the /64, because a host usually has all of
// it.
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

// shaken marks the end of the handshake.
func (c *admitted) shaken() error {
	c.admission.mu.Lock()
	defer c.admission.mu.Unlock()
	if c.admission.anybody {
		return c.introduce()
	}
	return nil
}

func (c *admitted) Close() error {
	c.once.Do(func() {
		a := c.admission
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.open, c)
		if c.strange {
			c.unstrange()
		} else if a.known[c.from]--; a.known[c.from] == 0 {
			delete(a.known, c.from)
		}
	})
	return c.TCPConn.Close()
}

// close closes all connections, and admits no more.
func (a *admission) close() {
	a.mu.Lock()
	a.closed = true
	open := make([]*admitted, 0, len(a.open))
	for c := range a.open {
		open = append(open, c)
	}
	a.mu.Unlock()
	for _, c := range open {
		_ = c.Close() // its error does not matter any more
	}
}
