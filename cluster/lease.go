package cluster

import (
	"fmt"

	"github.com/troupe-ml/troupe/config"
)

// lease is for how long a run's workers keep its ranks without a coordinator: as its configuration says, else as the
// coordinator was started with. One that does not outlast the coordinator's silence is refused: a worker would give its
// ranks up before the coordinator takes it for lost.
func (c *Coordinator) lease(cfg *config.Config) error {
	key := "cluster.lease_s"
	if !cfg.IsSet(key) {
		cfg.Cluster.LeaseS = c.cfg.Lease.Seconds()
	}
	if lease, silence := cfg.Cluster.LeaseS, c.cfg.Silence.Seconds(); lease <= silence {
		if !cfg.IsSet(key) {
			return fmt.Errorf("%w: its lease of %g s must be longer than its silence of %g s; start it with a longer --lease-s", ErrRequest, lease, silence)
		}
		return cfg.Errorf(key, "%g s must be longer than the silence of this coordinator, %g s (--silence-s); raise it, or leave it out", lease, silence)
	}
	return nil
}
