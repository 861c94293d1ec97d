package scheduler

import (
	"fmt"
	"math"
	"strings"
)

// SimulateDynamic plays a work-conserving order: whenever a rank is free, its [Dispatcher]
// says what it begins. It returns the orders that came out as a table, whose actions are
// those of the priorities', and their times.
//
// When an action begins, the rank that its output goes to learns of it, and when it is
// due by the costs that the priorities expect. The machine's own costs may differ from
// those; nobody knows them in advance. Each rank has its own core.
//
// It fails with ErrCosts for costs, links or credits that are impossible, and for shared
// cores; and with ErrDeadlock where an edge has no credit at all.
func (m Machine) SimulateDynamic(r *Priorities) (*Table, *Timeline, error) {
	return m.playDynamic(r, true)
}

// playDynamic is SimulateDynamic with announcements or without.
func (m Machine) playDynamic(r *Priorities, announce bool) (*Table, *Timeline, error) {
	t := r.table
	if err := (&player{table: t}).checkCredits(m.Credits); err != nil {
		return nil, nil, err
	}
	if m.Share != nil {
		return nil, nil, fmt.Errorf("%w: a dynamic order is played on ranks that share nothing, leave Share out", ErrCosts)
	}
	p := newDynamicPlay(m, r, announce)
	for e, ok := p.pop(); ok; e, ok = p.pop() {
		if err := p.happen(e); err != nil {
			return nil, nil, err
		}
	}
	for rank := range p.ranks {
		if !p.ranks[rank].dispatcher.Done() {
			return nil, nil, p.stuck()
		}
	}
	p.timeline.Summarise()
	return p.table, p.timeline, nil
}

// dynamicPlay follows a clock, event by event.
type dynamicPlay struct {
	Machine
	priorities *Priorities
	announce   bool
	events
	ranks    []dynamicRank
	underWay [2][]int // by EdgeKind and sender: outputs
	table    *Table   // what comes out
	timeline *Timeline
}

type dynamicRank struct {
	dispatcher *Dispatcher
	busy       bool
	can        func(Action) bool
}

func newDynamicPlay(m Machine, r *Priorities, announce bool) *dynamicPlay {
	t := *r.table
	ranks := t.NumRanks()
	t.Ranks = make([][]Action, ranks)
	p := &dynamicPlay{
		Machine: m, priorities: r, announce: announce, table: &t,
		ranks:    make([]dynamicRank, ranks),
		underWay: [2][]int{make([]int, t.NumChunks), make([]int, t.NumChunks)},
		timeline: &Timeline{
			Start: make([][]float64, ranks), End: make([][]float64, ranks),
			Busy: make([]float64, ranks), Idle: make([]float64, ranks),
		},
	}
	for rank := range p.ranks {
		p.ranks[rank] = dynamicRank{dispatcher: r.Dispatcher(rank), can: p.hasCredit}
		n := len(r.ranks[rank].row)
		t.Ranks[rank] = make([]Action, 0, n)
		p.timeline.Start[rank], p.timeline.End[rank] = make([]float64, 0, n), make([]float64, 0, n)
		p.push(event{kind: rankDecides, rank: rank})
	}
	return p
}

func (p *dynamicPlay) happen(e event) error {
	r := &p.ranks[e.rank]
	switch e.kind {
	case actionEnded:
		r.dispatcher.End(e.action)
		r.busy = false
		return p.send(e)
	case inputArrived:
		r.dispatcher.Arrived(e.action)
	case inputComing:
		r.dispatcher.ExpectInput(e.action, e.due)
		return nil // which is no reason to begin something
	case rankDecides:
		if r.busy {
			return nil
		}
		if a, ok := r.dispatcher.Next(e.time, r.can); ok {
			return p.begin(e.time, e.rank, a)
		}
		return nil
	}
	p.push(event{time: e.time, kind: rankDecides, rank: e.rank})
	return nil
}

func (p *dynamicPlay) begin(now float64, rank int, a Action) error {
	cost, err := (&player{Machine: p.Machine}).cost(rank, a)
	if err != nil {
		return err
	}
	r := &p.ranks[rank]
	r.dispatcher.Begin(a)
	r.busy = true
	p.table.Ranks[rank] = append(p.table.Ranks[rank], a)
	p.timeline.Start[rank] = append(p.timeline.Start[rank], now)
	p.timeline.End[rank] = append(p.timeline.End[rank], now+cost)
	p.timeline.Busy[rank] += cost
	p.push(event{time: now + cost, kind: actionEnded, rank: rank, action: a})
	p.moveCredits(now, a)
	to, way, err := p.receiver(rank, a)
	if err != nil {
		return err
	}
	if to.Type != 0 && p.announce {
		p.push(event{time: now + way, kind: inputComing, rank: p.table.RankOf(int(to.Chunk)), action: to,
			due: now + p.priorities.costs(rank, a) + way})
	}
	return nil
}

// send is the end of an action: its output goes where it is needed.
func (p *dynamicPlay) send(e event) error {
	p.push(event{time: e.time, kind: rankDecides, rank: e.rank})
	to, way, err := p.receiver(e.rank, e.action)
	if err == nil && to.Type != 0 {
		p.push(event{time: e.time + way, kind: inputArrived, rank: p.table.RankOf(int(to.Chunk)), action: to})
	}
	return err
}

// receiver returns the action that gets an action's output, with type 0 if there is
// none, and how long the output is under way.
func (p *dynamicPlay) receiver(rank int, a Action) (to Action, way float64, err error) {
	kind, ok := a.Type.edge()
	if !ok {
		return Action{}, 0, nil
	}
	chunk, ok := kind.to(int(a.Chunk), p.table.NumChunks)
	if !ok {
		return Action{}, 0, nil
	}
	if other := p.table.RankOf(chunk); p.Link != nil && other != rank {
		way = p.Link(rank, other)
		if !(way >= 0) || math.IsInf(way, 1) {
			return Action{}, 0, fmt.Errorf("%w: a message from rank %d to rank %d takes %v, want a finite number from 0", ErrCosts, rank, other, way)
		}
	}
	a.Chunk = int32(chunk)
	return a, way, nil
}

// hasCredit says whether the edge that an action's output leaves by has room.
func (p *dynamicPlay) hasCredit(a Action) bool {
	kind, ok := a.Type.edge()
	if !ok || p.Credits == nil {
		return true
	}
	_, ok = kind.to(int(a.Chunk), p.table.NumChunks)
	return !ok || p.underWay[kind][a.Chunk] < p.Credits.Of(kind, int(a.Chunk))
}

// moveCredits takes a credit for the output of an action that begins, and gives back
// that of its input, to whose sender that may matter at once.
func (p *dynamicPlay) moveCredits(now float64, a Action) {
	kind, ok := a.Type.edge()
	if !ok || p.Credits == nil {
		return
	}
	if _, ok := kind.to(int(a.Chunk), p.table.NumChunks); ok {
		p.underWay[kind][a.Chunk]++
	}
	if from, ok := kind.from(int(a.Chunk), p.table.NumChunks); ok {
		p.underWay[kind][from]--
		p.push(event{time: now, kind: rankDecides, rank: p.table.RankOf(from)})
	}
}

// stuck says what the ranks that have not ended would begin next.
func (p *dynamicPlay) stuck() error {
	var text strings.Builder
	shown := 0
	for rank := range p.ranks {
		c := p.ranks[rank].dispatcher
		if c.Done() {
			continue
		}
		if shown++; shown > cycleShown {
			text.WriteString("\n  and other ranks")
			break
		}
		a := c.row[c.cursor]
		fmt.Fprintf(&text, "\n  rank %d: %v is next", rank, a)
		if !p.hasCredit(a) {
			kind, _ := a.Type.edge()
			fmt.Fprintf(&text, ", and the %s edge of chunk %d has %d credits: give it at least 1", kind, a.Chunk, p.Credits.Of(kind, int(a.Chunk)))
		}
	}
	return fmt.Errorf("%w: no rank has anything that it can begin%s", ErrDeadlock, text.String())
}
