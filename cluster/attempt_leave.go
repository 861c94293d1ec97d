package cluster

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster/internal/beat"
)

// leaving handles a beat of a worker that was told to stop. The worker gets no more ranks. If it has ranks of a run, others get them
// (attempt.leave); the worker leaves when its ranks are released, or when its grace time is over. Without ranks it is removed after
// leaveGrace. If the whole cluster stops, the runs write their last checkpoints with this worker's help.
func (c *Coordinator) leaving(id uuid.UUID, grace time.Duration) {
	c.mu.Lock()
	if w := c.workers[id]; w != nil && !w.exits {
		w.leaving, w.exits = true, true
		w.moveBy = time.Now().Add(grace - min(moveTime, grace*2/5))
		c.log.Info("worker was told to stop", "worker", w.Name, "address", w.Address, "has_ranks", w.attempt != nil,
			"grace_s", grace.Seconds())
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

// leave lets the workers of the attempt go that were told to stop: free workers get their ranks after the step in progress, as if they had
// failed (attempt_renew.go), so that no work is done again. If that is not possible, the attempt regroups after the step. Watch calls
// leave again when the attempt has begun.
func (a *attempt) leave() {
	workers := a.c.leavingOf(a)
	a.mu.Lock()
	begun, known, regroups := a.actors != nil && len(workers) > 0, true, a.regroups
	for _, w := range workers {
		if begun {
			known = known && a.asked[w.ID]
			a.asked[w.ID] = true
		}
	}
	a.mu.Unlock()
	if !begun {
		return
	}
	var err error
	var ready []<-chan struct{}
	at := a.c.firstMove(workers)
	if !known && !regroups {
		if err = a.reserve(workers); err == nil {
			ready = a.prepare(at)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.over():
		return
	case known:
	case err != nil || a.regroups:
		a.actors.Regroup(0, a.regroupFor(workers, err))
	default:
		a.c.log.Info("other workers get the ranks of those that leave", "run", a.run, "workers", strings.Join(namesIn(workers), " "))
		a.moveWhen(ready)
	}
	a.abandonAt(at)
}

// over reports whether the attempt has ended, or ends because it has lost a worker. mu is held.
func (a *attempt) over() bool {
	select {
	case <-a.actors.Done():
		return true
	default:
		return a.err != nil
	}
}

// handOver ends the attempt, and the next one gives the ranks of its leaving workers to others. If no free worker can get them any more, it
// returns a request for a checkpoint.
func (a *attempt) handOver() *troupe.RegroupEvent {
	workers := a.c.leavingOf(a)
	err := a.reserve(workers)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.over(): // its workers leave the next attempt
	case err != nil || a.regroups:
		e := a.regroupFor(workers, err)
		return &e
	default:
		for _, w := range workers {
			a.loses(w.Member, errLeaves)
		}
	}
	return nil
}

// regroupFor returns a request for a checkpoint, after which the run continues without some workers. why says that none gets their ranks at
// once. mu is held.
func (a *attempt) regroupFor(workers []*workerState, why error) troupe.RegroupEvent {
	names := namesIn(workers)
	a.regroups = true
	a.c.log.Info("the run writes a checkpoint before its workers leave", "run", a.run, "workers", strings.Join(names, " "),
		"not_replaced", why)
	return troupe.RegroupEvent{Leaving: names}
}

func namesIn(workers []*workerState) (names []string) {
	for _, w := range workers {
		names = append(names, w.Name)
	}
	slices.Sort(names)
	return names
}

// abandonAt lets the ranks of leaving workers move at some time in the middle of a step, if it has not ended then; zero: no limit. mu is
// held.
func (a *attempt) abandonAt(at time.Time) {
	switch {
	case at.IsZero():
	case a.abandons == nil:
		a.abandons, a.abandonsAt = time.AfterFunc(time.Until(at), a.abandon), at // stopped with the attempt
	case at.Before(a.abandonsAt):
		a.abandons.Reset(time.Until(at))
		a.abandonsAt = at
	}
}

// keepStep ends the effect of abandonAt. mu is held.
func (a *attempt) keepStep() {
	if a.abandons != nil {
		a.abandons.Stop()
	}
}

func (a *attempt) abandon() {
	a.mu.Lock()
	// Before all ranks have their state there is no step, and handOver is called before the first one.
	may := !a.over() && !a.regroups && a.actors.Ready()
	a.mu.Unlock()
	if !may {
		return
	}
	if e := a.handOver(); e != nil {
		a.actors.Regroup(0, *e)
	}
}

// firstMove returns when the ranks of the first of some workers must move; zero: there is no limit.
func (c *Coordinator) firstMove(workers []*workerState) (first time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range workers {
		if at := w.moveBy; first.IsZero() || !at.IsZero() && at.Before(first) {
			first = at
		}
	}
	return first
}

// errLeaves: a worker was drained or told to stop, and others get its ranks.
var errLeaves = errors.New("it was drained or told to stop")

// reserve keeps free workers for the ranks of workers that leave, until the attempt has ended, so that no other run or attempt takes them
// while the step in progress ends. The error says why no free workers can get those ranks, with their state; then none is reserved.
func (a *attempt) reserve(workers []*workerState) error {
	var shares []*share
	var ranks []int
	for _, w := range workers {
		if s := a.shareOf(w.ID); s != nil && len(s.ranks) > 0 {
			shares, ranks = append(shares, s), append(ranks, s.ranks...)
		}
	}
	err := a.as.Plan.Keeps(ranks, a.shadows)
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	chosen := make(map[*workerState][]int)
	free := a.c.freeFor(a)
	for _, s := range shares {
		if err != nil {
			break
		}
		var i int
		if i, err = a.replacement(s, free); err == nil {
			chosen[free[i]] = s.ranks
			free = slices.Delete(free, i, i+1)
		}
	}
	if err != nil || !a.ended.IsZero() {
		chosen = nil
	}
	a.reserves(chosen)
	return err
}

// reserves keeps some free workers for ranks, and no others. c.mu is held.
func (a *attempt) reserves(chosen map[*workerState][]int) {
	for _, w := range a.c.workers {
		ranks := chosen[w]
		if w.reserved == a && !slices.Equal(w.due, ranks) {
			w.reserved, w.due = nil, nil
			a.c.tell()
			a.unprepare(w.ID)
		}
		if ranks != nil {
			w.reserved, w.due = a, ranks
		}
	}
	for id := range a.preparing {
		if w := a.c.workers[id]; w == nil || w.reserved != a {
			a.unprepare(id)
		}
	}
}

// unreserve ends reserve. c.mu is held.
func (a *attempt) unreserve() { a.reserves(nil) }
