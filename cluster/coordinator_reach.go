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

// reach dials a joining worker at the addresses that it advertises. A worker that reaches the coordinator may itself be
// unreachable: behind a firewall or address translation, or in a container. The process that answers must prove that it
// is this worker.
func (c *Coordinator) reach(ctx context.Context, h *wire.Hello, name string) error {
	if err := c.refuses(h); err != nil { // this error says more
		return err
	}
	select { // a worker can make the coordinator dial, so the number is bounded
	case c.dialling <- struct{}{}:
		defer func() { <-c.dialling }()
	case <-ctx.Done():
		return fmt.Errorf("%w yet: it is checking %d others, the limit", beat.ErrUnreachable, cap(c.dialling))
	}
	w := h.GetWorker()
	dialer := transport.Dialer{TLS: pki.ClientTLSTo(name, c.authority.Root(), c.keeper.Get, pki.Worker)}
	own := ownAddresses(w)
	all := make([]error, len(own))
	var dials sync.WaitGroup
	for i, of := range own { // at once, so that a slow address does not delay another
		dials.Go(func() {
			if err := touch(ctx, of.address, dialer.Dial); err != nil {
				all[i] = fmt.Errorf("%w at its address %s: %w; give an address that other hosts reach (%s), or open the firewall for it",
					beat.ErrUnreachable, words.Cut(of.address, shownAddress), err, of.flags)
			}
		})
	}
	dials.Wait()
	err := errors.Join(all...)
	if err != nil && c.unreachable.note(name, w.GetAddress(), err, time.Now()) {
		c.log.Warn("refused an unreachable worker; it keeps trying", "worker", name, "err", err)
	}
	return err
}

const (
	// limitDialBacks is how many workers the coordinator dials at a time.
	limitDialBacks = 64
	// shownAddress and shownError bound the bytes of a worker's address and of an error that are kept and shown.
	shownAddress = 260
	shownError   = 1000
)

const (
	// askedTime is how long an unreachable worker stays listed after its last try to join.
	askedTime = 15 * time.Second
	// limitUnreachable is how many unreachable workers are listed.
	limitUnreachable = 256
)

// UnreachableWorker is a worker that tries to join, and that the coordinator refuses because it can't reach it.
type UnreachableWorker struct {
	Name    string
	Address string // the one it advertises
	Error   string
	Asked   time.Time // its last try
}

// unreachables are the workers that try to join and can't be reached.
type unreachables struct {
	mu  sync.Mutex
	all map[string]UnreachableWorker // by name
}

// note stores that a worker was refused, and reports whether it is new in the list.
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

// forget removes a worker that has joined.
func (u *unreachables) forget(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.all, name)
}

// list returns the workers that tried to join within askedTime, by name.
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
