// Package locate finds a cluster's coordinator each time it is dialed: at a fixed address, or at the
// addresses that a service currently gives (package discovery). It must never know the protocols on a
// connection.
package locate

import (
	"context"
	"net"
	"sync"

	"github.com/troupe-ml/troupe/cluster/discovery"
)

// Locator finds the coordinator each time it is dialed: at a fixed address, or through a service that
// knows its current address.
type Locator struct {
	text   string           // as the user gave it
	finder discovery.Finder // nil: text is the address

	mu   sync.Mutex
	last string // the address that worked last; "": none yet
}

// New makes a Locator for HOST:PORT, or for a URL with a registered scheme.
func New(text string) (*Locator, error) {
	l := &Locator{text: text}
	if !discovery.HasScheme(text) {
		return l, nil
	}
	var err error
	l.finder, err = discovery.Open(text)
	return l, err
}

// Searches reports whether the Locator looks the address up, rather than having a fixed one.
func (l *Locator) Searches() bool { return l.finder != nil }

// Close ends the search.
func (l *Locator) Close() {
	if l.finder != nil {
		_ = l.finder.Close() // its error does not matter any more
	}
}

// Open opens a connection to an address. It must fail unless the process there proves to be the
// coordinator, and return soon after its context ends.
type Open func(ctx context.Context, address string) (net.Conn, error)

// Dial opens a connection to the coordinator. It tries the address that worked last while a new lookup
// runs, because the service may be down. It tries the next address when the one before has failed or
// not answered for 200 ms; the first that opens counts. If none opens, the error is a *SearchError.
func (l *Locator) Dial(ctx context.Context, open Open) (net.Conn, error) {
	if l.finder == nil {
		return open(ctx, l.text)
	}
	s := newSearch(ctx, l, open)
	defer s.end()
	return s.run()
}

func (l *Locator) latest() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *Locator) remember(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = address
}
