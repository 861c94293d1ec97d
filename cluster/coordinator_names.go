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

// arriveTime is how long a name is kept for a worker that has got a certificate by it and is no member yet, and for those that
// were members of the coordinator before this one.
const arriveTime = 5 * time.Second

// arrivals are the names of workers that have got a certificate and are no members yet.
type arrivals struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// expected notes that a worker is to become a member.
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

// came notes that it is one.
func (a *arrivals) came(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.since, name)
}

// awaited reports whether a worker of a name is to become a member, and since when.
func (a *arrivals) awaited(name string) (time.Duration, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, known := a.since[name]
	took := time.Since(since)
	return took, known && took < arriveTime
}

// inUse says why a worker's name can't be another's now.
func (c *Coordinator) inUse(name string) error {
	for _, m := range c.beats.Members() {
		if m.Name != name {
			continue
		}
		err := fmt.Errorf("%q is the name of a worker at %s, which was heard %.1f s ago; choose another (--name)", m.Name, m.Address,
			time.Since(m.Heard).Seconds())
		if !m.Connected {
			err = fmt.Errorf("%w: %w", errNameLater, err)
		}
		return err
	}
	if took, awaited := c.names.awaited(name); awaited {
		return fmt.Errorf("%w: %q is the name of a worker that got a certificate %.1f s ago; choose another (--name)", errNameLater, name,
			took.Seconds())
	}
	return nil
}

// identify is who has opened a connection, if its certificate still counts.
func (c *Coordinator) identify(s tls.ConnectionState) (name, role string, err error) {
	name, role, err = identify(s)
	if err != nil {
		return name, role, err
	}
	switch err = c.authority.Accepts(s.VerifiedChains[0][0]); { // which pki.IdentityOf has looked at
	case err == nil:
		return name, role, nil
	case errors.Is(err, pki.ErrNameHeld):
		err = fmt.Errorf("%w: %w", transport.ErrReplaced, err)
	case errors.Is(err, pki.ErrTokenRefused):
		err = fmt.Errorf("%w: %w", transport.ErrRevoked, err)
	}
	return "", "", err
}

// revokedEvery is how often is looked whether something was revoked, which engine cluster revoke may have done in the folder.
const revokedEvery = time.Second

// watchRevoked closes the connections of those whose token was revoked, or whose name was released, until ctx ends.
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
