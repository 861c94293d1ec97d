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

// hosts are a coordinator's workers, for one run.
type hosts struct {
	*Coordinator
	had    int               // workers of the attempt before
	notice func(text string) // is told what is waited for, when that takes a while; nil: the log is
}

// free are the workers that compute for nobody, by name, without those that could not
// reach one before them. mu is held.
func (h *hosts) free() []*workerState {
	var free []*workerState
	for _, w := range h.workers {
		if w.attempt == nil {
			free = append(free, w)
		}
	}
	slices.SortFunc(free, func(a, b *workerState) int { // workers of one host are neighbours
		return cmp.Or(strings.Compare(hostOf(a.Address), hostOf(b.Address)), strings.Compare(a.Name, b.Name))
	})
	var joined []*workerState
	for _, w := range free {
		if !slices.ContainsFunc(joined, func(other *workerState) bool { return h.keptApart(w.ID, other.ID) }) {
			joined = append(joined, w)
		}
	}
	return joined
}

// releasing reports whether workers are being given back. mu is held.
func (c *Coordinator) releasing() bool {
	for _, w := range c.workers {
		if w.attempt != nil && !w.attempt.ended.IsZero() {
			return true
		}
	}
	return false
}

// apartTime is how long two workers that could not reach each other are not used together.
const apartTime = time.Minute

// keptApart reports whether two workers are not to be used together. mu is held.
func (c *Coordinator) keptApart(a, b uuid.UUID) bool {
	now := time.Now()
	return now.Before(c.apart[[2]uuid.UUID{a, b}]) || now.Before(c.apart[[2]uuid.UUID{b, a}])
}

// regroupTime is how long a run that has lost a worker waits for as many as it had: one
// that was started again takes a moment to join.
const regroupTime = time.Second

// Choose takes as many free workers as there are ranks, or all.
func (h *hosts) Choose(ctx context.Context, cfg *config.Config, wait time.Duration) (plan.Workers, error) {
	began := time.Now()
	deadline, regroup, patience := time.NewTimer(wait), time.NewTimer(min(wait, regroupTime)), newPatience()
	defer deadline.Stop()
	defer regroup.Stop()
	defer patience.stop()
	for {
		least := 1
		if time.Since(began) < min(wait, regroupTime) {
			least = h.had
		}
		a, changed, err := h.choose(cfg, least, time.Since(began) < releaseTime)
		if a != nil {
			h.had = len(a.shares)
			return a, nil
		}
		took := time.Since(began)
		switch {
		case errors.Is(err, errReleasing) && took < releaseTime:
			regroup.Reset(releaseTime - took)
			deadline.Reset(max(wait, releaseTime) - took) // who waits for nothing waits for these
		case wait == 0 || !errors.Is(err, plan.ErrNoRoom):
			return nil, err
		default:
			if left := min(wait, regroupTime) - took; left > 0 { // also where it was reset
				regroup.Reset(left)
			}
		}
		select {
		case <-changed:
		case <-regroup.C:
		case <-patience.timer.C:
			h.tellWaiting(fmt.Sprintf("the run waits for workers for %.0f s: %v", patience.waited().Seconds(), err))
		case <-deadline.C:
			return nil, fmt.Errorf("%w, after %.0f s", err, wait.Seconds())
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// releaseTime is how long a run waits for workers that another one is giving back.
const releaseTime = 5 * time.Second

var errReleasing = fmt.Errorf("%w: some are being given back", plan.ErrNoRoom)

// choose takes at least that many free workers, or none; patient says that it does better to
// take none yet where more are being given back.
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
			return nil, h.changed, fmt.Errorf("%w: none has joined; start one (engine worker), or give --workers to wait for them", plan.ErrNoRoom)
		}
		return nil, h.changed, fmt.Errorf("%w: %d of the %d that have joined are free%s, and the run, of %s, needs %d", plan.ErrNoRoom, len(free),
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
	h.generation++
	id, err := uuid.NewV7()
	if err != nil {
		return nil, nil, err
	}
	a = &attempt{c: h.Coordinator, cfg: cfg, id: id, generation: h.generation, tellWaiting: h.tellWaiting,
		answers: make(chan answer, 2*len(free)), gone: make(chan struct{}), told: make(map[string]bool), cuts: newCuts(h.Coordinator, free),
		memory: make(map[int]int64)}
	for _, w := range free {
		w.attempt = a
		a.shares = append(a.shares, &share{Member: w.Member})
	}
	return a, nil, nil
}

// withRoom has workers in front whose hosts have a core for each rank of a tensor group.
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

// named are the workers that the configuration names for its ranks, each once.
func (h *hosts) named(cfg *config.Config, place []string, free []*workerState) (chosen []*workerState, err error) {
	for rank, name := range place {
		if slices.ContainsFunc(chosen, func(w *workerState) bool { return w.Name == name }) {
			continue
		}
		i := slices.IndexFunc(free, func(w *workerState) bool { return w.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%w: cluster.place puts rank %d on worker %q, which is not free", plan.ErrNoRoom, rank, name)
		}
		chosen = append(chosen, free[i])
	}
	return chosen, nil
}
