package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/wire"
)

// reach dials a worker that wants to join, at the addresses that it advertises: a worker that reaches the coordinator
// may be reached by nobody, behind a firewall or address translation, or in a container. What answers must prove that
// it is this worker.
func (c *Coordinator) reach(ctx context.Context, h *wire.Hello, name string) error {
	if err := c.refuses(h); err != nil { // which says more
		return err
	}
	select { // a worker's word makes the coordinator dial: so many at a time
	case c.dialling <- struct{}{}:
		defer func() { <-c.dialling }()
	case <-ctx.Done():
		return fmt.Errorf("%w yet: the coordinator is dialling %d others", beat.ErrUnreachable, cap(c.dialling))
	}
	w := h.GetWorker()
	dialer := transport.Dialer{TLS: pki.ClientTLSTo(name, c.authority.Root(), c.keeper.Get, pki.Worker)}
	own := ownAddresses(w)
	all := make([]error, len(own))
	var dials sync.WaitGroup
	for i, of := range own { // at once: a slow address takes no time from another
		dials.Go(func() {
			if err := touch(ctx, of.address, dialer.Dial); err != nil {
				all[i] = fmt.Errorf("%w at its own address, %s: %w; give an address that other hosts reach (%s), or let connections to it through",
					beat.ErrUnreachable, words.Cut(of.address, shownAddress), err, of.flags)
			}
		})
	}
	dials.Wait()
	err := errors.Join(all...)
	if err != nil && c.unreachable.note(name, w.GetAddress(), err, time.Now()) {
		c.log.Warn("refused a worker that can't be reached; it asks again", "worker", name, "err", err)
	}
	return err
}

const (
	// limitDialBacks is how many workers the coordinator dials at a time.
	limitDialBacks = 64
	// shownAddress and shownError are how many bytes of a worker's address and of an error are kept and shown.
	shownAddress = 260
	shownError   = 1000
)

const (
	// askedTime is how long a worker that can't be reached counts as one that wants to join, after it has asked last.
	askedTime = 15 * time.Second
	// limitUnreachable is how many of them are known.
	limitUnreachable = 256
)

// UnreachableWorker wants to join, and is refused since the coordinator can't reach it.
type UnreachableWorker struct {
	Name    string
	Address string // that it advertises
	Error   string
	Asked   time.Time // last
}

// unreachables are the workers that ask to join and can't be reached.
type unreachables struct {
	mu  sync.Mutex
	all map[string]UnreachableWorker // by name
}

// note notes that a worker was refused, and reports whether that is news.
func (u *unreachables) note(name, address string, err error, now time.Time) (news bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	was, known := u.all[name]
	for old, w := range u.all {
		if now.Sub(w.Asked) >= askedTime {
			delete(u.all, old)
		}
	}
	if !known && len(u.all) >= limitUnreachable {
		return false
	}
	if u.all == nil {
		u.all = make(map[string]UnreachableWorker)
	}
	u.all[name] = UnreachableWorker{name, words.Cut(address, shownAddress), words.Cut(err.Error(), shownError), now}
	return !known || was.Address != u.all[name].Address
}

// forget notes that a worker has joined.
func (u *unreachables) forget(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.all, name)
}

// list lists those that have asked lately, by name.
func (u *unreachables) list(now time.Time) (all []UnreachableWorker) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, w := range u.all {
		if now.Sub(w.Asked) < askedTime {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b UnreachableWorker) int { return strings.Compare(a.Name, b.Name) })
	return all
}
