package scheduler

import (
	"fmt"
	"math"
	"slices"
)

// loop simulates ranks event by event. A policy chooses what a free rank takes next: the next
// action of its row ([inRow]), the best that is ready ([greedyPolicy]), or the first of its row
// that is ready ([closeUpPolicy]). The end of an action is known at its start. If ranks share
// cores, the end depends on what else runs ([sharedCores]).
//
// Only a table in its own order on ranks that share nothing is simulated without the loop: see
// [player].
type loop struct {
	Machine
	events
	policy   policy
	can      func(Action) bool
	cores    *sharedCores // nil: each rank has its own
	table    *Table       // the orders that come out
	timeline *Timeline
	running  [][]Action  // by rank; none: it is free
	parts    []partTimes // by rank, of what runs in parts
	deciding []bool      // by rank: it decides before time advances
	edges    *Edges
	underWay [2][]int     // by EdgeKind and slot: outputs
	lacking  [2][][]int32 // by EdgeKind, chunk and microbatch: inputs still to arrive, for actions with several
}

// policy chooses what a free rank takes next, and is told what happens.
type policy interface {
	// next returns the action that a free rank starts now, two actions for a pair, none if the rank
	// has to wait. can reports whether an action has the credits for its output.
	next(rank int, can func(Action) bool) []Action
	begin(rank int, a Action)
	end(rank int, a Action)
	arrived(rank int, a Action) // all inputs of one of the rank's actions have arrived
}

// newLoop simulates the chunks and ranks of a table.
func newLoop(m Machine, t *Table, edges *Edges, p policy) *loop {
	ranks := t.NumRanks()
	out := *t
	out.Ranks = make([][]Action, ranks)
	l := &loop{
		Machine: m, policy: p, table: &out, timeline: newTimeline(ranks),
		running: make([][]Action, ranks), deciding: make([]bool, ranks), parts: make([]partTimes, ranks),
		edges: edges,
	}
	for kind := range l.underWay {
		l.underWay[kind] = make([]int, t.NumChunks+len(t.Skips))
	}
	l.expect()
	l.can = l.hasCredit
	if m.Share != nil {
		l.cores = newSharedCores(m.Share, l.timeline.Busy)
	}
	return l
}

// run simulates until no event is left.
func (l *loop) run() error {
	for rank := range l.running {
		l.decide(0, rank)
	}
	for {
		soonest := l.soonest()
		if l.cores != nil && (soonest > l.cores.now || len(l.events) == 0) { // all events of this time have happened
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
		if !l.complete(e.action) {
			return nil
		}
		l.policy.arrived(e.rank, e.action)
		l.decide(e.time, e.rank)
	case rankDecides:
		l.deciding[e.rank] = false
		if actions := l.policy.next(e.rank, l.can); len(actions) > 0 {
			return l.begin(e.time, e.rank, actions)
		}
	}
	return nil
}

// decide schedules a free rank's decision after all events of this time.
func (l *loop) decide(now float64, rank int) {
	if len(l.running[rank]) == 0 && !l.deciding[rank] {
		l.deciding[rank] = true
		l.push(event{time: now, kind: rankDecides, rank: rank})
	}
}

func (l *loop) begin(now float64, rank int, actions []Action) error {
	l.running[rank] = append(l.running[rank], actions...)
	var room [4]float64
	times := room[:]
	if len(actions) > 2 {
		times = make([]float64, 2*len(actions))
	}
	work, done, err := l.together(rank, actions, 0, times, times[len(actions):])
	if err != nil {
		return err
	}
	if actions[0].Part > 0 {
		l.parts[rank] = partTimes{slices.Clone(times), work, done}
		work = done // while it waits for tokens, its cores stay its own
	}
	if math.IsInf(work, 1) {
		return fmt.Errorf("%w: the pair of %v on rank %d has an infinite cost", ErrCosts, actions[0], rank)
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
	}
	return nil
}

func (l *loop) end(now float64, rank int) error {
	if len(l.running[rank]) > 0 && l.running[rank][0].Part > 0 {
		l.endParts(now, rank)
	}
	for _, a := range l.running[rank] {
		if a.Part == 0 {
			l.timeline.End[rank] = append(l.timeline.End[rank], now)
		}
		l.policy.end(rank, a)
		if err := l.send(now, rank, a); err != nil {
			return err
		}
	}
	l.running[rank] = l.running[rank][:0]
	l.decide(now, rank)
	return nil
}

// send delivers an action's output to the receiving ranks after the time of a message.
func (l *loop) send(now float64, rank int, a Action) error {
	kind, ok := a.edge()
	if !ok {
		return nil
	}
	a.Overlap = false
	for _, e := range l.edges.Outs(kind, a.Chunk) {
		a.Chunk = e.To
		if err := l.sendTo(now, rank, a); err != nil {
			return err
		}
	}
	return nil
}

// sendTo delivers an input to the rank of an action.
func (l *loop) sendTo(now float64, rank int, a Action) error {
	to := l.table.RankOf(int(a.Chunk))
	later := l.Link != nil && to != rank
	if later {
		way := l.Link(rank, to)
		if !(way >= 0) {
			return fmt.Errorf("%w: a message from rank %d to rank %d takes %v: want a number of at least 0", ErrCosts, rank, to, way)
		}
		if math.IsInf(way, 1) { // it never arrives
			return nil
		}
		now += way
	}
	e := event{time: now, kind: inputArrived, rank: to, action: a}
	if !later {
		return l.happen(e) // before anything else of this time
	}
	l.push(e)
	return nil
}

// expect counts the inputs of each action that has several.
func (l *loop) expect() {
	if len(l.table.Skips) == 0 {
		return
	}
	for kind := range l.lacking {
		l.lacking[kind] = make([][]int32, l.table.NumChunks)
		for chunk := range l.lacking[kind] {
			if n := len(l.edges.Ins(EdgeKind(kind), int32(chunk))); n > 1 {
				l.lacking[kind][chunk] = slices.Repeat([]int32{int32(n)}, l.table.Microbatches)
			}
		}
	}
}

// complete records an input of an action and reports whether it was the last one.
func (l *loop) complete(a Action) bool {
	kind, _ := a.edge()
	if l.lacking[kind] == nil || l.lacking[kind][a.Chunk] == nil {
		return true
	}
	n := &l.lacking[kind][a.Chunk][a.Microbatch]
	*n--
	return *n == 0
}

// slot returns the index of an edge among those of its kind: the sender's for a neighbor's edge;
// the skips' indexes follow.
func (l *loop) slot(e Edge) int {
	if e.isSkip() {
		return l.table.NumChunks + int(e.Skip)
	}
	return int(e.From)
}

// hasCredit reports whether all edges of an action's output have a credit.
func (l *loop) hasCredit(a Action) bool {
	kind, ok := a.edge()
	if !ok || l.Credits == nil {
		return true
	}
	for _, e := range l.edges.Outs(kind, a.Chunk) {
		if l.underWay[kind][l.slot(e)] >= l.Credits.OfEdge(e) {
			return false
		}
	}
	return true
}

// moveCredits takes a credit of each edge of a starting action's output, and returns those of its
// inputs, which may let the senders start at once.
func (l *loop) moveCredits(now float64, a Action) {
	kind, ok := a.edge()
	if !ok || l.Credits == nil {
		return
	}
	for _, e := range l.edges.Outs(kind, a.Chunk) {
		l.underWay[kind][l.slot(e)]++
	}
	for _, e := range l.edges.Ins(kind, a.Chunk) {
		l.underWay[kind][l.slot(e)]--
		l.decide(now, l.table.RankOf(int(e.From)))
	}
}
