package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/plan"
)

// hosts gives one run the coordinator's workers.
type hosts struct {
	*Coordinator
	had    int                // workers of the previous attempt
	notice func(text string)  // gets what the run waits for after a while, as the log does; may be nil
	tried  map[uuid.UUID]bool // free workers for which the run was regrouped; the coordinator's mu
}

// free returns the workers that compute for no run and are not reserved for one, by host and name. It leaves out workers that
// recently could not reach an earlier one in the list. mu is held.
func (h *hosts) free() []*workerState { return h.freeFor(nil) }

// freeFor is free with the workers that are reserved for an attempt. mu is held.
func (c *Coordinator) freeFor(a *attempt) []*workerState {
	var free []*workerState
	for _, w := range c.workers {
		if w.attempt == nil && !w.leaving && (w.reserved == nil || w.reserved == a) {
			free = append(free, w)
		}
	}
	slices.SortFunc(free, func(a, b *workerState) int { // workers of one host are neighbours
		return cmp.Or(strings.Compare(hostOf(a.Address), hostOf(b.Address)), strings.Compare(a.Name, b.Name))
	})
	var joined []*workerState
	for _, w := range free {
		if !slices.ContainsFunc(joined, func(other *workerState) bool { return c.keptApart(w.ID, other.ID) }) {
			joined = append(joined, w)
		}
	}
	return joined
}

// releasing reports whether a run is releasing workers that another one may use. mu is held.
func (c *Coordinator) releasing() bool {
	for _, w := range c.workers {
		if w.attempt != nil && !w.leaving && !w.attempt.ended.IsZero() {
			return true
		}
	}
	return false
}

// apartTime is how long two workers that could not reach each other are kept apart.
const apartTime = time.Minute

// keptApart reports whether two workers must not be used together. mu is held.
func (c *Coordinator) keptApart(a, b uuid.UUID) bool {
	now := time.Now()
	return now.Before(c.apart[[2]uuid.UUID{a, b}]) || now.Before(c.apart[[2]uuid.UUID{b, a}])
}

// regroupTime is how long a run whose worker failed waits for as many workers as it had. A
// restarted worker takes a moment to join.
const regroupTime = time.Second

// Choose takes as many free workers as there are ranks, or all of them if there are fewer.
func (h *hosts) Choose(ctx context.Context, cfg *config.Config, wait time.Duration) (plan.Workers, error) {
	began := time.Now() // the waits below count time awake
	deadline, regroup, patience := time.NewTimer(wait), time.NewTimer(min(wait, regroupTime)), newPatience(h.awake)
	defer deadline.Stop()
	defer regroup.Stop()
	defer patience.stop()
	for {
		least := 1
		took := h.awake.Since(began)
		if took < min(wait, regroupTime) {
			least = h.had
		}
		a, changed, err := h.choose(cfg, least, took < releaseTime)
		if a != nil {
			h.had = len(a.shares)
			return a, nil
		}
		switch {
		case errors.Is(err, errReleasing) && took < releaseTime:
			regroup.Reset(releaseTime - took)
			deadline.Reset(max(wait, releaseTime) - took) // even without a wait for more workers
		case wait == 0 || !errors.Is(err, plan.ErrNoRoom):
			return nil, err
		default:
			if left := min(wait, regroupTime) - took; left > 0 { // it may have been reset for releaseTime
				regroup.Reset(left)
			}
		}
		select {
		case <-changed:
		case <-regroup.C:
		case <-patience.timer.C:
			h.tellWaiting(fmt.Sprintf("the run has waited %.0f s for workers: %v", patience.waited().Seconds(), err))
		case <-deadline.C:
			if left := wait - h.awake.Since(began); left > 0 { // the process was frozen meanwhile
				deadline.Reset(left)
				continue
			}
			return nil, fmt.Errorf("%w, after a wait of %.0f s", err, wait.Seconds())
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// releaseTime is how long a run waits for workers that another run is releasing.
const releaseTime = 5 * time.Second

var errReleasing = fmt.Errorf("%w: another run is still releasing some", plan.ErrNoRoom)

// choose takes at least that many free workers, or none. With patient it takes none yet while
// another run is releasing workers that this run could use.
func (h *hosts) choose(cfg *config.Config, least int, patient bool) (a *attempt, changed <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil, apiwire.ErrEnded
	}
	if err := checkNumbers(cfg); err != nil {
		return nil, nil, err
	}
	free, what := h.free(), ""
	ranks := cfg.Ranks()
	_, gpu := kindsOf(cfg)
	defer func() {
		if seen := h.seen(gpu); errors.Is(err, plan.ErrNoRoom) && seen != "" {
			err = fmt.Errorf("%w (%s)", err, seen)
		}
	}()
	if gpu {
		free, what = withGPUs(free), " and have a GPU"
	}
	if patient && len(free) < ranks && h.releasing() {
		return nil, h.changed, errReleasing
	}
	if len(free) < max(1, least) {
		if len(h.workers) == 0 {
			return nil, h.changed, fmt.Errorf("%w: none has joined; start workers (engine worker), or use --workers to wait for them",
				plan.ErrNoRoom)
		}
		return nil, h.changed, fmt.Errorf("%w: %d of %d joined workers are free%s; the run (%s) needs at least %d", plan.ErrNoRoom, len(free),
			len(h.workers), what, words.Plural(ranks, "rank"), max(1, least))
	}
	if place := cfg.Cluster.Place; len(place) > 0 {
		if free, err = h.named(cfg, place, free); err != nil {
			return nil, h.changed, err
		}
	}
	if len(free) > ranks && len(cfg.Cluster.Place) == 0 {
		free = withRoom(free, slices.Max(cfg.Parallel.Tensor))
	}
	free = free[:min(len(free), ranks)]
	if err := sameKernels(cfg, free); err != nil {
		return nil, h.changed, err
	}
	if h.tried == nil {
		h.tried = make(map[uuid.UUID]bool)
	}
	h.generation++
	id, err := uuid.NewV7()
	if err != nil {
		return nil, nil, err
	}
	a = &attempt{c: h.Coordinator, cfg: cfg, id: id, generation: h.generation, tellWaiting: h.tellWaiting, tried: h.tried,
		asked:   make(map[uuid.UUID]bool),
		answers: make(chan answer, 2*len(free)), gone: make(chan struct{}), told: make(map[string]bool), cuts: newCuts(h.Coordinator, free),
		memory: make(map[int]int64)}
	for _, w := range free {
		w.attempt = a
		a.shares = append(a.shares, &share{Member: w.Member})
	}
	return a, nil, nil
}

// withRoom sorts workers to the front whose hosts have a core for each rank of a tensor group.
func withRoom(free []*workerState, tensor int) []*workerState {
	cores := make(map[string]int)
	for _, w := range free {
		cores[hostOf(w.Address)] += max(1, int(w.Offer.GetCores()))
	}
	small := func(w *workerState) int {
		if cores[hostOf(w.Address)] < tensor {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(free, func(a, b *workerState) int { return small(a) - small(b) })
	return free
}

// named returns the workers that cluster.place names, each once.
func (h *hosts) named(cfg *config.Config, place []string, free []*workerState) (chosen []*workerState, err error) {
	for rank, name := range place {
		if slices.ContainsFunc(chosen, func(w *workerState) bool { return w.Name == name }) {
			continue
		}
		i := slices.IndexFunc(free, func(w *workerState) bool { return w.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%w: rank %d needs worker %q (cluster.place), which is not free", plan.ErrNoRoom, rank, name)
		}
		chosen = append(chosen, free[i])
	}
	return chosen, nil
}
