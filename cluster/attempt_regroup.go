package cluster

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster/internal/beat"
)

// An attempt regroups to change its workers without a failure: it ends with a checkpoint, and the run's next attempt
// resumes from it with other workers.

// leaving handles a beat of a worker that was told to stop. The worker gets no more ranks. If it has ranks of a run, the
// run writes a checkpoint and continues without it; the worker leaves when its ranks are released, or when its grace time
// is over. Without ranks it is removed after leaveGrace. If the whole cluster stops, the runs write their last checkpoints
// with this worker's help.
func (c *Coordinator) leaving(id uuid.UUID) {
	c.mu.Lock()
	if w := c.workers[id]; w != nil && !w.leaving {
		w.leaving = true
		c.log.Info("worker was told to stop", "worker", w.Name, "address", w.Address, "has_ranks", w.attempt != nil)
	}
	c.mu.Unlock()
	time.AfterFunc(leaveGrace, func() { // ends by itself
		if c.runs.ending() {
			return
		}
		if a := c.attemptOf(id); a != nil {
			a.leave()
			return
		}
		c.beats.Expel(id, beat.ErrGoodbye)
	})
}

// staying counts the workers that were not told to stop. mu is held.
func (c *Coordinator) staying() (n int) {
	for _, w := range c.workers {
		if !w.leaving {
			n++
		}
	}
	return n
}

// leavingOf returns the workers of an attempt that were told to stop.
func (c *Coordinator) leavingOf(a *attempt) (all []*workerState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		if w.attempt == a && w.leaving {
			all = append(all, w)
		}
	}
	return all
}

// leave lets the workers of the attempt go that were told to stop: free workers get their ranks, as if they had failed (attempt_renew.go),
// or, if that is not possible, the attempt regroups after the step in progress. Before the attempt has begun, Watch calls it again.
func (a *attempt) leave() {
	workers := a.c.leavingOf(a)
	a.mu.Lock()
	var names []string
	if a.actors != nil {
		for _, w := range workers {
			if !a.asked[w.ID] {
				a.asked[w.ID] = true
				names = append(names, w.Name)
			}
		}
	}
	a.mu.Unlock()
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	err := a.replaceable(workers)
	if err == nil {
		a.c.log.Info("other workers get the ranks of those that leave", "run", a.run, "workers", strings.Join(names, " "))
		a.handOver(workers)
		return
	}
	a.c.log.Info("the run writes a checkpoint before its workers leave", "run", a.run, "workers", strings.Join(names, " "),
		"not_replaced", err)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.actors.Regroup(0, troupe.RegroupEvent{Leaving: names})
}

// handOver lets other workers get the ranks of some after the step in progress, so that no work is done again. A step that takes longer
// than handOverTime is abandoned, because the workers do not wait for longer than their grace time.
func (a *attempt) handOver(workers []*workerState) {
	end := sync.OnceFunc(func() {
		for _, w := range workers {
			a.lost(w.Member, errLeaves)
		}
	})
	a.actors.Between(end)
	time.AfterFunc(a.c.cfg.handOver, func() { // ends by itself
		if a.actors.Ready() { // else the step has not begun, and no rank has a state to hand over
			end()
		}
	})
}

// errLeaves: a worker was drained or told to stop, and others get its ranks.
var errLeaves = errors.New("it was drained or told to stop")

// replaceable returns why free workers cannot get the ranks of some workers, with their state; nil: they can.
func (a *attempt) replaceable(workers []*workerState) error {
	var shares []*share
	var ranks []int
	for _, w := range workers {
		if s := a.shareOf(w.ID); s != nil && len(s.ranks) > 0 {
			shares, ranks = append(shares, s), append(ranks, s.ranks...)
		}
	}
	if err := a.as.Plan.Keeps(ranks, a.shadows); err != nil {
		return err
	}
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	free := (&hosts{Coordinator: a.c}).free()
	for _, s := range shares {
		i, err := a.replacement(s, free)
		if err != nil {
			return err
		}
		free = slices.Delete(free, i, i+1)
	}
	return nil
}

// regrouped returns the step of the checkpoint with which the attempt ended to change its workers; nil: it ended otherwise.
func (a *attempt) regrouped() *int64 {
	a.mu.Lock()
	r := a.actors
	a.mu.Unlock()
	if r == nil {
		return nil
	}
	select {
	case <-r.Done():
		if e := r.Wait().Regroup; e != nil {
			return &e.Step
		}
	default:
	}
	return nil
}

// minGain is the part of the largest load that a regroup must save. Starting an attempt takes seconds.
const minGain = 0.1

// rebalance makes the attempt regroup at its next checkpoint if free workers would lower the load of the worker that has
// the most work for its cores. An attempt does this at most once, and a run at most once for each worker.
func (a *attempt) rebalance() {
	a.mu.Lock()
	due := a.actors != nil && !a.rebalances && time.Since(a.looked) > rebalanceEvery
	if due {
		a.looked = time.Now()
	}
	a.mu.Unlock()
	if !due || !a.cfg.Cluster.Rebalance || len(a.cfg.Cluster.Place) > 0 || len(a.c.runs.queue()) > 0 { // the queue comes first
		return
	}
	free := a.spare()
	if len(free) == 0 {
		return
	}
	a.mu.Lock()
	known := slices.Equal(a.weighed, free)
	a.weighed = free
	a.mu.Unlock()
	if known {
		return
	}
	names, better := a.withFree(free)
	if !better {
		return
	}
	a.c.mu.Lock()
	for _, w := range free {
		if slices.Contains(names, w.Name) {
			w.wanted = a
			a.tried[w.ID] = true
		}
	}
	a.c.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rebalances = true
	a.c.log.Info("free workers make the run faster; it uses them from its next checkpoint on", "run", a.run, "workers",
		strings.Join(names, " "))
	a.actors.Regroup(1, troupe.RegroupEvent{Free: names})
}

// spare returns the free workers that the attempt could use, with the attempt's own order of workers.
func (a *attempt) spare() (free []*workerState) {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	_, gpu := kindsOf(a.cfg)
	own := make([]*workerState, 0, len(a.shares))
	for _, s := range a.busy() {
		own = append(own, &workerState{Member: s.Member})
	}
	all := (&hosts{Coordinator: a.c}).free()
	if gpu {
		all = withGPUs(all)
	}
	for _, w := range all {
		taken := w.wanted != nil && w.wanted != a && w.wanted.ended.IsZero()
		apart := slices.ContainsFunc(own, func(o *workerState) bool { return a.c.keptApart(o.ID, w.ID) })
		switch {
		case taken || apart || a.tried[w.ID] || time.Since(w.Joined) < a.c.cfg.steady:
		case sameKernels(a.cfg, append(slices.Clone(own), w)) != nil:
		default:
			free = append(free, w)
		}
	}
	return free
}

// withFree divides the ranks among the attempt's workers and free ones, and reports whether that lowers the largest load
// enough. It returns the names of the free workers that get ranks.
func (a *attempt) withFree(free []*workerState) (names []string, better bool) {
	ranks := a.cfg.Ranks()
	b := &attempt{c: a.c, cfg: a.cfg}
	for _, s := range a.busy() {
		b.shares = append(b.shares, &share{Member: s.Member})
	}
	for _, w := range free[:min(len(free), max(0, ranks-len(b.shares)))] {
		b.shares = append(b.shares, &share{Member: w.Member})
	}
	if len(b.shares) == len(a.busy()) {
		return nil, false
	}
	slices.SortFunc(b.shares, func(x, y *share) int { // as hosts.free does
		return cmp.Or(strings.Compare(x.host(), y.host()), strings.Compare(x.Name, y.Name))
	})
	if b.divide(a.as) != nil {
		return nil, false
	}
	for _, s := range b.busy() {
		if slices.ContainsFunc(free, func(w *workerState) bool { return w.ID == s.ID }) {
			names = append(names, s.Name)
		}
	}
	work := a.as.Plan.RankFLOPs()
	return names, len(names) > 0 && b.load(work) <= (1-minGain)*a.load(work)
}

// load returns the work of the worker with the most work for its processors: its cores, or its GPUs if ranks compute on
// GPUs.
func (a *attempt) load(work []float64) (most float64) {
	_, gpu := kindsOf(a.cfg)
	for _, s := range a.busy() {
		of := float64(max(1, s.Offer.GetCores()))
		if gpu {
			of = float64(max(1, len(gpus(s.Offer))))
		}
		sum := 0.0
		for _, r := range s.ranks {
			sum += work[r]
		}
		most = max(most, sum/of)
	}
	return most
}
