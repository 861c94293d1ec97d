package locate

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/troupe-ml/troupe/cluster/discovery"
)

// nextAfter is how long an address may take to answer before the next one is tried too.
const nextAfter = 200 * time.Millisecond

// search is one search for the coordinator. It is used by one goroutine.
type search struct {
	l      *Locator
	ctx    context.Context
	cancel context.CancelFunc
	open   Open

	lookups chan lookup
	looking bool // lookups will receive a result
	results chan opened
	active  int // pending results

	waiting, tried []string // addresses
	failed         *SearchError
}

// lookup is the result of a lookup.
type lookup struct {
	addresses []string
	err       error
}

// opened is the result of trying an address.
type opened struct {
	address string
	conn    net.Conn
	err     error
}

// newSearch begins a lookup.
func newSearch(ctx context.Context, l *Locator, open Open) *search {
	s := &search{l: l, open: open, lookups: make(chan lookup, 1), looking: true,
		results: make(chan opened, 1+discovery.LimitFound), failed: &SearchError{Of: l.text}}
	s.ctx, s.cancel = context.WithCancel(ctx)
	go func() { // ends with ctx, and is waited for
		addresses, err := l.finder.Find(s.ctx)
		s.lookups <- lookup{addresses, err}
	}()
	if last := l.latest(); last != "" {
		s.waiting = append(s.waiting, last)
	}
	return s
}

// run tries addresses until one opens, or none is left.
func (s *search) run() (net.Conn, error) {
	patience := nextAfter
	if until, ok := s.ctx.Deadline(); ok { // leave time for several tries
		patience = min(patience, time.Until(until)/4)
	}
	next := time.NewTimer(0)
	defer next.Stop()
	due := true // the next address may be tried
	for s.looking || s.active > 0 || len(s.waiting) > 0 && s.ctx.Err() == nil {
		if len(s.waiting) > 0 && (due || s.active == 0) && s.ctx.Err() == nil {
			s.try()
			due = false
			next.Reset(patience)
		}
		select {
		case f := <-s.lookups:
			s.found(f)
		case r := <-s.results:
			s.active--
			if r.err == nil {
				s.l.remember(r.address)
				return r.conn, nil
			}
			s.failed.Tried = append(s.failed.Tried, r.err)
		case <-next.C:
			due = true
		}
	}
	return nil, s.failed
}

// try begins to open the first waiting address.
func (s *search) try() {
	address := s.waiting[0]
	s.waiting, s.tried = s.waiting[1:], append(s.tried, address)
	s.active++
	go func() { // ends with ctx, and is waited for
		conn, err := s.open(s.ctx, address)
		s.results <- opened{address, conn, err}
	}()
}

// found handles the lookup's result.
func (s *search) found(f lookup) {
	s.looking, s.failed.Lookup = false, f.err
	if f.err == nil && len(f.addresses) == 0 {
		s.failed.Lookup = discovery.ErrNone
	}
	for _, address := range f.addresses[:min(len(f.addresses), discovery.LimitFound)] {
		if !slices.Contains(s.tried, address) && !slices.Contains(s.waiting, address) {
			s.waiting = append(s.waiting, address)
		}
	}
}

// end cancels pending work and closes connections that came too late.
func (s *search) end() {
	s.cancel()
	if s.looking {
		<-s.lookups
	}
	for ; s.active > 0; s.active-- {
		if r := <-s.results; r.conn != nil {
			_ = r.conn.Close()
		}
	}
}
