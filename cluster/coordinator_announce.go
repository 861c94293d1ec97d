package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/cluster/discovery"
)

// announce keeps the coordinator's address announced until ctx ends.
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
			c.log.Warn("can't announce the coordinator's address; it keeps trying, and runs continue", "announce", c.cfg.Announce,
				"err", err)
			said = time.Now()
		}
		select {
		case <-time.After(reachMost):
		case <-ctx.Done():
		}
	}
}
