package cluster

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/troupe-ml/troupe"
)

// An attempt regroups to change its workers without a failure: it ends with a checkpoint, and the run's next attempt
// resumes from it with other workers.

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
