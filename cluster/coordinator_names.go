package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
)

// arriveTime is how long a name is reserved for a worker that has a certificate and is not a member yet, and for the
// members of the previous coordinator.
const arriveTime = 5 * time.Second

// arrivals are the names of workers that have a certificate and are not members yet.
type arrivals struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// expected reserves the name of a worker that will become a member.
func (a *arrivals) expected(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for old, since := range a.since {
		if now.Sub(since) >= arriveTime {
			delete(a.since, old)
		}
	}
	if a.since == nil {
		a.since = make(map[string]time.Time)
	}
	a.since[name] = now
}

// came notes that the worker is a member.
func (a *arrivals) came(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.since, name)
}

// awaited reports whether a name is reserved, and for how long it has been.
func (a *arrivals) awaited(name string) (time.Duration, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, known := a.since[name]
	took := time.Since(since)
	return took, known && took < arriveTime
}

// inUse says why another worker can't take a name now; nil: it can.
func (c *Coordinator) inUse(name string) error {
	for _, m := range c.beats.Members() {
		if m.Name != name {
			continue
		}
		err := fmt.Errorf("worker %q at %s already has this name and was heard %.1f s ago; choose another name (--name)", m.Name, m.Address,
			time.Since(m.Heard).Seconds())
		if !m.Connected {
			err = fmt.Errorf("%w: %w", errNameLater, err)
		}
		return err
	}
	if took, awaited := c.names.awaited(name); awaited {
		return fmt.Errorf("%w: a worker with the name %q got its certificate %.1f s ago; choose another name (--name)", errNameLater, name,
			took.Seconds())
	}
	return nil
}

// identify returns the name and the role of the process that opened a connection, if its certificate is still accepted.
func (c *Coordinator) identify(s tls.ConnectionState) (name, role string, err error) {
	name, role, err = identify(s)
	if err != nil {
		return name, role, err
	}
	switch err = c.authority.Accepts(s.VerifiedChains[0][0]); { // pki.IdentityOf has checked that there is one
	case err == nil:
		return name, role, nil
	case errors.Is(err, pki.ErrNameHeld):
		err = fmt.Errorf("%w: %w", transport.ErrReplaced, err)
	case errors.Is(err, pki.ErrTokenRefused):
		err = fmt.Errorf("%w: %w", transport.ErrRevoked, err)
	}
	return "", "", err
}

// revokedEvery is how often the coordinator checks its folder for tokens that engine cluster revoke has revoked.
const revokedEvery = time.Second

// watchRevoked closes the connections of processes whose token was revoked or whose name was released, until ctx ends.
func (c *Coordinator) watchRevoked(ctx context.Context) {
	tick := time.NewTicker(revokedEvery)
	defer tick.Stop()
	for last := c.authority.Changes(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now := c.authority.Changes(); now != last {
			last = now
			c.transport.Recheck()
		}
	}
}
