// Package locate finds a cluster's coordinator whenever it is dialled: at its address, or where a
// service says that it is now (package discovery). It must never know what is said over a
// connection.
package locate

import (
	"context"
	"net"
	"sync"

	"github.com/troupe-ml/troupe/cluster/discovery"
)

// Locator finds the coordinator whenever it is dialled: at its address, or by a service that
// knows where it is now.
type Locator struct {
	text   string           // as the user gave it
	finder discovery.Finder // nil: text is the address

	mu   sync.Mutex
	last string // where it was found last; "": nowhere yet
}

// New takes HOST:PORT, or an address of a scheme that this program knows.
func New(text string) (*Locator, error) {
	l := &Locator{text: text}
	if !discovery.HasScheme(text) {
		return l, nil
	}
	var err error
	l.finder, err = discovery.Open(text)
	return l, err
}

// Searches reports whether the address is one of a service, and not the coordinator's own.
func (l *Locator) Searches() bool { return l.finder != nil }

// Close ends the search.
func (l *Locator) Close() {
	if l.finder != nil {
		_ = l.finder.Close() // whatever it was is over
	}
}

// Open opens a connection to an address. It must fail for every process that does not prove to be the
// coordinator, and end soon after its context.
type Open func(ctx context.Context, address string) (net.Conn, error)

// Dial opens a connection to the coordinator. The address of the last time is tried while a new
// lookup is under way: the service that answers it may be down. What comes next is tried when the
// one before has failed, or has not answered for a while; the first that opens counts. Where none
// does, the error is a *SearchError.
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
