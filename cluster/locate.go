package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/cluster/discovery"
)

// locator finds the coordinator whenever it is dialled: at its address, or by a service that
// knows where it is now.
type locator struct {
	text   string           // as the user gave it
	finder discovery.Finder // nil: text is the address

	mu   sync.Mutex
	last string // where it was found last; "": nowhere yet
}

// newLocator takes HOST:PORT, or an address of a scheme that this program knows.
func newLocator(text string) (*locator, error) {
	l := &locator{text: text}
	if !discovery.HasScheme(text) {
		return l, nil
	}
	var err error
	l.finder, err = discovery.Open(text)
	return l, err
}

// close ends the search.
func (l *locator) close() {
	if l.finder != nil {
		_ = l.finder.Close() // whatever it was is over
	}
}

// opened is what came of trying an address.
type opened struct {
	address string
	conn    net.Conn
	err     error
}

// dial opens a connection to the coordinator. open must fail for every process that does not
// prove to be it, and end soon after its context. The address of the last time is tried while
// a new lookup is under way: the service that answers it may be down. What comes next is tried
// when the one before has failed, or has not answered for a while; the first that opens counts.
func (l *locator) dial(ctx context.Context, open func(ctx context.Context, address string) (net.Conn, error)) (net.Conn, error) {
	if l.finder == nil {
		return open(ctx, l.text)
	}
	ctx, cancel := context.WithCancel(ctx)
	type found struct {
		addresses []string
		err       error
	}
	lookups, results := make(chan found, 1), make(chan opened, 1+discovery.LimitFound)
	go func() { // ends with ctx, and is waited for
		addresses, err := l.finder.Find(ctx)
		lookups <- found{addresses, err}
	}()
	looking, active := true, 0
	defer func() { // what has lost must not stay open
		cancel()
		if looking {
			<-lookups
		}
		for ; active > 0; active-- {
			if r := <-results; r.conn != nil {
				_ = r.conn.Close()
			}
		}
	}()
	failed := &searchError{of: l.text}
	var waiting, tried []string
	if last := l.latest(); last != "" {
		waiting = append(waiting, last)
	}
	patience := tryNext
	if until, ok := ctx.Deadline(); ok { // several fit in
		patience = min(patience, time.Until(until)/4)
	}
	next := time.NewTimer(0)
	defer next.Stop()
	due := true // the next may be tried
	for looking || active > 0 || len(waiting) > 0 && ctx.Err() == nil {
		if len(waiting) > 0 && (due || active == 0) && ctx.Err() == nil {
			address := waiting[0]
			waiting, tried = waiting[1:], append(tried, address)
			active++
			go func() { // ends with ctx, and is waited for
				conn, err := open(ctx, address)
				results <- opened{address, conn, err}
			}()
			due = false
			next.Reset(patience)
		}
		select {
		case f := <-lookups:
			looking, failed.lookup = false, f.err
			if f.err == nil && len(f.addresses) == 0 {
				failed.lookup = discovery.ErrNone
			}
			for _, address := range f.addresses[:min(len(f.addresses), discovery.LimitFound)] {
				if !slices.Contains(tried, address) && !slices.Contains(waiting, address) {
					waiting = append(waiting, address)
				}
			}
		case r := <-results:
			active--
			if r.err == nil {
				l.remember(r.address)
				return r.conn, nil
			}
			failed.tried = append(failed.tried, r.err)
		case <-next.C:
			due = true
		}
	}
	return nil, failed
}

func (l *locator) latest() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *locator) remember(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = address
}

// searchError says why the coordinator was not found.
type searchError struct {
	of     string
	lookup error   // nil: something was found
	tried  []error // of each address
}

func (e *searchError) Error() string {
	var why []string
	if e.lookup != nil {
		why = append(why, e.lookup.Error())
	}
	for _, err := range e.tried {
		why = append(why, err.Error())
	}
	return fmt.Sprintf("no coordinator of this cluster was found by %s: %s", e.of, strings.Join(why, "; "))
}

func (e *searchError) Unwrap() []error {
	if e.lookup != nil {
		return append([]error{e.lookup}, e.tried...)
	}
	return e.tried
}

// absent reports whether looking again may help: whoever was found that is not the right one
// may be what is left of another time. When every address has said no, it does not.
func (e *searchError) absent() bool {
	return e.lookup != nil || slices.ContainsFunc(e.tried, absent)
}

// announce keeps the coordinator's address known until ctx ends.
func (c *Coordinator) announce(ctx context.Context, a discovery.Announcer) {
	hash := c.authority.Hash()
	name := fmt.Sprintf("%x", hash[:8])
	var said time.Time
	for ctx.Err() == nil {
		err := a.Announce(ctx, name, c.Address())
		if ctx.Err() != nil || errors.Is(err, discovery.ErrClosed) {
			return
		}
		if time.Since(said) >= reachSayEvery {
			c.log.Warn("the coordinator's address can't be announced; it keeps trying, and what runs is not disturbed", "announce", c.cfg.Announce, "err", err)
			said = time.Now()
		}
		select {
		case <-time.After(reachMost):
		case <-ctx.Done():
		}
	}
}
