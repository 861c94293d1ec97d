package cluster

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/journal"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/plan"
)

// runHosts gives a submitted run its workers.
type runHosts struct {
	hosts
	r *run
}

// Choose stores which workers the run gets. A run that resumes waits for as many workers as it had,
// and after takeUpWait for any worker.
func (h *runHosts) Choose(ctx context.Context, cfg *config.Config, wait time.Duration) (plan.Workers, error) {
	if h.r.c.runs.position(h.r) == 0 {
		defer h.waits()()
	}
	h.r.mu.Lock()
	want := h.r.want
	h.r.mu.Unlock()
	if want > 0 {
		if h.waitFor(ctx, want, sayTime) != nil && ctx.Err() == nil {
			h.mu.Lock()
			_, gpu := kindsOf(cfg)
			seen := h.seen(gpu)
			h.mu.Unlock()
			h.tellWaiting(fmt.Sprintf("the run waits for %s, the number that it had, for up to %.0f s more (%s)", words.Plural(want, "worker"),
				(takeUpWait - sayTime).Seconds(), cmp.Or(seen, "none has joined")))
			_ = h.waitFor(ctx, want, takeUpWait-sayTime) // with fewer workers the run resumes as well
		}
		wait = forever
	}
	w, err := h.hosts.Choose(ctx, cfg, wait)
	if err != nil {
		return nil, err
	}
	return h.r.computedBy(w), nil
}

// computedBy notes the workers of the run.
func (r *run) computedBy(w plan.Workers) plan.Workers {
	var names []string
	of := make(map[int]string)
	if a, ok := w.(*attempt); ok {
		for _, s := range a.shares {
			names = append(names, s.Name)
			for _, rank := range s.ranks {
				of[rank] = s.Name
			}
		}
	}
	r.mu.Lock()
	r.workers, r.hosts = names, of
	r.mu.Unlock()
	return &runWorkers{w, r}
}

// waitFor waits for that many workers, for a limited time awake.
func (h *runHosts) waitFor(ctx context.Context, workers int, most time.Duration) error {
	ctx, cancel := h.awake.WithTimeout(ctx, most)
	defer cancel()
	return h.Wait(ctx, workers)
}

// forever is longer than any coordinator runs.
const forever = 100 * 365 * 24 * time.Hour

// runWorkers are the workers that were chosen for a run.
type runWorkers struct {
	plan.Workers
	r *run
}

// Renew implements plan.Renewer.
func (w *runWorkers) Renew(ctx context.Context, wait time.Duration) (_ plan.Workers, rescue bool, err error) {
	old, ok := w.Workers.(plan.Renewer)
	if !ok {
		return nil, false, fmt.Errorf("%w: a %T cannot be renewed", plan.ErrNoHolder, w.Workers)
	}
	next, rescue, err := old.Renew(ctx, wait)
	if err != nil {
		return nil, false, err
	}
	return w.r.computedBy(next), rescue, nil
}

// Assign stores the run's UUID, and writes to the journal that the run is beginning before anything writes to its folder.
func (w *runWorkers) Assign(ctx context.Context, a plan.Assignment) (plan.Ranks, error) {
	w.r.mu.Lock()
	w.r.uuid = a.Run
	w.r.mu.Unlock()
	ranks, err := w.Workers.Assign(ctx, a)
	if err != nil {
		return ranks, err
	}
	err = w.r.c.runs.note(w.r, func(e *journal.Entry) {
		if e.Untouched() {
			e.State, e.Workers = journal.Beginning, len(w.r.workerNames())
		}
	})
	w.r.c.cfg.at(pointPlaced)
	return ranks, err
}
