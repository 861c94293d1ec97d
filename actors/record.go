package actors

import (
	"sync/atomic"
	"time"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// recorder says until when orders are timed because an observer is connected. It is safe for
// concurrent use.
type recorder struct {
	base  time.Time
	until atomic.Int64 // ns since base
}

func newRecorder() *recorder { return &recorder{base: time.Now()} }

// extend records until d from now, if it does not already record longer.
func (r *recorder) extend(d time.Duration) {
	until := int64(time.Since(r.base) + d)
	for {
		was := r.until.Load()
		if until <= was || r.until.CompareAndSwap(was, until) {
			return
		}
	}
}

func (r *recorder) on() bool { return int64(time.Since(r.base)) < r.until.Load() }

// underWay is the order that the scheduler actor started last.
type underWay struct {
	step, order int64
	phase       event.Phase
	began       time.Time
	traced      bool
}

// actionLog holds the finished actions of a stage in a timed order. One goroutine adds to it; any
// goroutine may read it at any time, without a lock.
type actionLog struct {
	step, order int64
	phase       event.Phase
	before      *actionLog // log of the previous order, on which other stages may still work; its own before is nil
	times       []event.ActionTime
	n           atomic.Int64 // number of recorded times
}

// newActionLog makes a log for the actions of a row.
func newActionLog(h Header, p event.Phase, row int, before *actionLog) *actionLog {
	l := &actionLog{step: h.Step, order: h.Order, phase: p, times: make([]event.ActionTime, row)}
	if before != nil {
		l.before = &actionLog{step: before.step, order: before.order, phase: before.phase, times: before.done()}
		l.before.n.Store(int64(len(l.before.times)))
	}
	return l
}

// add adds a finished action; it drops actions beyond the length of the row.
func (l *actionLog) add(t event.ActionTime) {
	if n := l.n.Load(); n < int64(len(l.times)) {
		l.times[n] = t
		l.n.Store(n + 1)
	}
}

// done returns the finished actions so far.
func (l *actionLog) done() []event.ActionTime {
	n := l.n.Load()
	return l.times[:n:n]
}

// of returns the log of an order; nil: none.
func (l *actionLog) of(order int64) *actionLog {
	switch {
	case l == nil:
	case l.order == order:
		return l
	case l.before != nil && l.before.order == order:
		return l.before
	}
	return nil
}

// Record times the actions of all orders that start within d from now, whatever Spec.TraceEvery
// says.
func (r *Run) Record(d time.Duration) { r.recorder.extend(d) }

// Actions returns what has been recorded so far of the order on which the stages work or, between
// two orders, of the last one. It asks no actor, so it also answers if all of them wait for each
// other.
func (r *Run) Actions() event.Actions {
	at := r.underWay.Load()
	if at == nil {
		return event.Actions{}
	}
	a := event.Actions{Step: at.step, Phase: at.phase, Began: at.began}
	if !at.traced {
		return a
	}
	a.Ranks = make([][]event.ActionTime, 0, len(r.cells))
	for _, c := range r.cells {
		if c.Load().Rank < 0 {
			continue
		}
		var done []event.ActionTime
		if l := c.actions.Load().of(at.order); l != nil {
			done = l.done() // its entries do not change any more
		}
		a.Ranks = append(a.Ranks, done)
	}
	return a
}

// RankActions holds finished actions of a rank in an order, starting with action First.
type RankActions struct {
	Rank        int
	Step, Order int64
	Phase       event.Phase
	First       int
	Times       []event.ActionTime
}

// ObserveActions records finished actions of a rank in another process, in this process's time. It
// drops actions that do not continue those already known of their order: they arrive again with the
// next connection.
func (l *local) ObserveActions(a RankActions) {
	spec := l.shown.Load()
	if spec == nil || a.Rank < 0 || a.Rank >= spec.ranks() || spec.host(a.Rank) == "" {
		return
	}
	l.byName[spec.stageName(a.Rank)].observeActions(a, spec.rowLen(a.Rank, a.Phase))
}

// observeActions records them for a stage in another process, whose rows have the given number of
// actions.
func (c *statusCell) observeActions(a RankActions, row int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.actions.Load()
	if l != nil && a.Order < l.order {
		l = l.of(a.Order)
	} else if l == nil || a.Order > l.order {
		l = newActionLog(Header{Step: a.Step, Order: a.Order}, a.Phase, row, l)
		c.actions.Store(l)
	}
	if l == nil || a.First < 0 || a.First > int(l.n.Load()) {
		return
	}
	for i, t := range a.Times {
		if a.First+i >= int(l.n.Load()) {
			l.add(t)
		}
	}
}

// rowLen returns the number of actions of a rank in an order.
func (s *Spec) rowLen(rank int, p event.Phase) int {
	at := s.place(rank)
	t := s.replicas()[at[grid.Data]].table(p)
	if t == nil {
		return 0
	}
	return len(t.Ranks[at[grid.Pipeline]])
}

// ActionsSince returns the finished actions of each stage here that were not reported yet, up to
// most actions and parts, of which an action has at most scheduler.MaxParts. A process that polls
// repeatedly passes in told, by rank, what it has received; the function updates it.
func (s *Stages) ActionsSince(told map[int]Told, most int) (all []RankActions) {
	for _, c := range s.cells {
		rank := c.Load().Rank
		l := c.actions.Load()
		if l == nil || most <= 0 {
			continue
		}
		was := told[rank]
		for _, one := range []*actionLog{l.before, l} {
			if one == nil || one.order < was.Order {
				continue
			}
			first := 0
			if one.order == was.Order {
				first = was.Actions
			}
			done := one.done()
			if first >= len(done) || most <= 0 {
				continue
			}
			n := 0
			for _, t := range done[first:] {
				if most -= 1 + len(t.Parts); most < 0 { // it waits for the next reply
					break
				}
				n++
			}
			if done = done[first : first+n]; n == 0 {
				continue
			}
			all = append(all, RankActions{Rank: rank, Step: one.step, Order: one.order, Phase: one.phase, First: first, Times: done})
			was = Told{one.order, first + len(done)}
		}
		told[rank] = was
	}
	return all
}

// Told is how many of a rank's actions an observer has received.
type Told struct {
	Order   int64
	Actions int // number of the order's actions
}
