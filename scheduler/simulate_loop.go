package scheduler

import (
	"fmt"
	"math"
)

// loop plays ranks event by event. What a free rank takes next is its policy's to say:
// the next of its row ([inRow]), the best that is ready ([greedyPolicy]), or what a
// [Dispatcher] says ([dispatched]). When an action ends is known when it begins, or, where
// ranks share cores, follows from what runs beside it ([sharedCores]).
//
// A table in its own order on ranks that share nothing is the one play without it: see
// [player].
type loop struct {
	Machine
	events
	policy   policy
	listener listener // nil: it isn't one
	can      func(Action) bool
	cores    *sharedCores // nil: each rank has its own
	table    *Table       // the orders that come out
	timeline *Timeline
	running  [][]Action // by rank; none: it is free
	deciding []bool     // by rank: it decides before time goes on
	underWay [2][]int   // by EdgeKind and sender: outputs
}

// policy says what a free rank takes next, and is told what happens.
type policy interface {
	// next returns what a free rank begins now, more than one action for a pair, none if
	// it has to wait. can says whether an action has a credit for its output.
	next(rank int, can func(Action) bool) []Action
	begin(rank int, a Action)
	end(rank int, a Action)
	arrived(rank int, a Action) // the input of one of the rank's actions is there
}

// listener is a policy that wants to know, too, when the input of one of a rank's actions
// is being made.
type listener interface{ coming(rank int, a Action) }

// newLoop plays the chunks and ranks of a table.
func newLoop(m Machine, t *Table, p policy) *loop {
	ranks := t.NumRanks()
	out := *t
	out.Ranks = make([][]Action, ranks)
	l := &loop{
		Machine: m, policy: p, table: &out, timeline: newTimeline(ranks),
		running: make([][]Action, ranks), deciding: make([]bool, ranks),
		underWay: [2][]int{make([]int, t.NumChunks), make([]int, t.NumChunks)},
	}
	l.can = l.hasCredit
	l.listener, _ = p.(listener)
	if m.Share != nil {
		l.cores = newSharedCores(m.Share, l.timeline.Busy)
	}
	return l
}

// run plays until nothing happens any more.
func (l *loop) run() error {
	for rank := range l.running {
		l.decide(0, rank)
	}
	for {
		soonest := l.soonest()
		if l.cores != nil && (soonest > l.cores.now || len(l.events) == 0) { // all of now has happened
			ended, err := l.cores.endBy(soonest)
			if err != nil {
				return err
			}
			for _, rank := range ended {
				l.push(event{time: l.cores.now, kind: actionEnded, rank: rank})
			}
			if len(ended) > 0 {
				continue
			}
		}
		if len(l.events) == 0 {
			return nil
		}
		if err := l.happen(l.pop()); err != nil {
			return err
		}
	}
}

func (l *loop) happen(e event) error {
	switch e.kind {
	case actionEnded:
		return l.end(e.time, e.rank)
	case inputArrived:
		l.policy.arrived(e.rank, e.action)
		l.decide(e.time, e.rank)
	case inputComing: // which is no reason to begin something
		l.listener.coming(e.rank, e.action)
	case rankDecides:
		l.deciding[e.rank] = false
		if actions := l.policy.next(e.rank, l.can); len(actions) > 0 {
			return l.begin(e.time, e.rank, actions)
		}
	}
	return nil
}

// decide lets a rank decide, if it is free, when all has happened that happens now.
func (l *loop) decide(now float64, rank int) {
	if len(l.running[rank]) == 0 && !l.deciding[rank] {
		l.deciding[rank] = true
		l.push(event{time: now, kind: rankDecides, rank: rank})
	}
}

func (l *loop) begin(now float64, rank int, actions []Action) error {
	l.running[rank] = append(l.running[rank], actions...)
	work := 0.0
	for _, a := range actions {
		c, err := l.cost(rank, a)
		if err != nil {
			return err
		}
		work += c
	}
	if math.IsInf(work, 1) {
		return fmt.Errorf("%w: the pair of %v on rank %d costs more than a number holds", ErrCosts, actions[0], rank)
	}
	if l.cores != nil {
		now = l.cores.begin(now, rank, work)
	} else {
		l.timeline.Busy[rank] += work
		l.push(event{time: now + work, kind: actionEnded, rank: rank})
	}
	for _, a := range actions {
		l.table.Ranks[rank] = append(l.table.Ranks[rank], a)
		l.timeline.Start[rank] = append(l.timeline.Start[rank], now)
		l.policy.begin(rank, a)
		l.moveCredits(now, a)
		if l.listener == nil {
			continue
		}
		if err := l.send(now, rank, a, inputComing); err != nil {
			return err
		}
	}
	return nil
}

func (l *loop) end(now float64, rank int) error {
	for _, a := range l.running[rank] {
		l.timeline.End[rank] = append(l.timeline.End[rank], now)
		l.policy.end(rank, a)
		if err := l.send(now, rank, a, inputArrived); err != nil {
			return err
		}
	}
	l.running[rank] = l.running[rank][:0]
	l.decide(now, rank)
	return nil
}

// send lets the rank that an action's output goes to know of it after a message's time.
func (l *loop) send(now float64, rank int, a Action, what eventKind) error {
	kind, ok := a.Type.edge()
	if !ok {
		return nil
	}
	chunk, ok := kind.to(int(a.Chunk), l.table.NumChunks)
	if !ok {
		return nil
	}
	to := l.table.RankOf(chunk)
	later := l.Link != nil && to != rank
	if later {
		way := l.Link(rank, to)
		if !(way >= 0) {
			return fmt.Errorf("%w: a message from rank %d to rank %d takes %v, want a number from 0", ErrCosts, rank, to, way)
		}
		if math.IsInf(way, 1) { // it never arrives
			return nil
		}
		now += way
	}
	a.Chunk, a.Overlap = int32(chunk), false
	e := event{time: now, kind: what, rank: to, action: a}
	if what == inputArrived && !later {
		return l.happen(e) // as it would before anything else of this time
	}
	l.push(e)
	return nil
}

// hasCredit says whether the edge that an action's output leaves by has room.
func (l *loop) hasCredit(a Action) bool {
	kind, ok := a.Type.edge()
	if !ok || l.Credits == nil {
		return true
	}
	_, ok = kind.to(int(a.Chunk), l.table.NumChunks)
	return !ok || l.underWay[kind][a.Chunk] < l.Credits.Of(kind, int(a.Chunk))
}

// moveCredits takes a credit for the output of an action that begins, and gives back
// that of its input, to whose sender that may matter at once.
func (l *loop) moveCredits(now float64, a Action) {
	kind, ok := a.Type.edge()
	if !ok || l.Credits == nil {
		return
	}
	l.underWay[kind][a.Chunk]++
	if from, ok := kind.from(int(a.Chunk), l.table.NumChunks); ok {
		l.underWay[kind][from]--
		l.decide(now, l.table.RankOf(from))
	}
}
