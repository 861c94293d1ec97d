package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-ml/troupe/internal/wire"
)

// Drain gives a worker no more ranks, and lets other workers take those that it has, as if it had been told to stop. The worker stays a
// member until it stops. A worker that joins again under the name gets ranks again.
func (c *Coordinator) Drain(name string) error {
	c.mu.Lock()
	var of *workerState
	var names []string
	for _, w := range c.workers {
		if names = append(names, w.Name); w.Name == name {
			of = w
		}
	}
	if of == nil {
		c.mu.Unlock()
		return fmt.Errorf("%w: no worker is named %.100q; the workers are %s", ErrRequest, name, listed(names))
	}
	first := !of.leaving
	if of.leaving = true; first && c.cfg.handOver > 0 {
		of.moveBy = time.Now().Add(c.cfg.handOver)
	}
	a := of.attempt
	c.mu.Unlock()
	if first {
		c.log.Info("worker is drained: it gets no more ranks", "worker", name, "has_ranks", a != nil)
	}
	if a != nil {
		a.leave()
	}
	return nil
}

// listed joins names for an error; at most mostSeen of them.
func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	if more := len(names) - mostSeen; more > 0 {
		names = append(names[:mostSeen:mostSeen], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// Drain asks the coordinator to move a worker's ranks to others and to give it no more. Members says when it has none.
func (c *Client) Drain(ctx context.Context, worker string) error {
	_, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Drain{Drain: &wire.DrainRequest{Worker: worker}}})
	return err
}
