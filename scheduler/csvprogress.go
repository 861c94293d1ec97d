package scheduler

import (
	"fmt"
	"strings"
)

// progress walks the ranks through their cells, each as far as it gets. An action
// waits for the action that makes its input, and a receive for its send.
type progress struct {
	*sheet
	stands  []cursor // by rank: before the cell that comes next
	waiting [][]int  // by rank: the ranks that wait for one of its cells
	ready   []int    // ranks that may get on
}

// checkProgress says that all ranks come to their ends.
func (s *sheet) checkProgress() error {
	ranks := s.table.NumRanks()
	p := &progress{sheet: s, stands: make([]cursor, ranks), waiting: make([][]int, ranks), ready: make([]int, ranks)}
	for r := range ranks {
		p.ready[r] = ranks - 1 - r
	}
	for len(p.ready) > 0 {
		rank := p.ready[len(p.ready)-1]
		p.ready = p.ready[:len(p.ready)-1]
		p.advance(rank)
	}
	for rank := range ranks {
		if p.obstacle(rank).waits {
			return p.deadlock(rank)
		}
	}
	return nil
}

func (p *progress) advance(rank int) {
	before := p.stands[rank]
	for {
		o := p.obstacle(rank)
		if o.waits {
			p.waiting[o.needed.rank] = append(p.waiting[o.needed.rank], rank)
			break
		}
		if o.atEnd {
			break
		}
		p.stands[rank] = o.cell.beyond
	}
	if p.stands[rank] != before {
		p.ready = append(p.ready, p.waiting[rank]...)
		p.waiting[rank] = p.waiting[rank][:0]
	}
}

// obstacle is what a rank stands before.
type obstacle struct {
	cell   sheetCell
	atEnd  bool // there is no cell any more
	waits  bool
	needed spot // of what it waits for
	// An action waits for the one that makes its input, a receive for a send.
	waiter, input Action
	send          communication
}

func (p *progress) obstacle(rank int) obstacle {
	c, ok := p.next(rank, p.stands[rank])
	if !ok {
		return obstacle{atEnd: true}
	}
	o := obstacle{cell: c}
	if c.actions == nil {
		if o.send, o.waits = p.sendFor(c.other); o.waits {
			o.needed = spot{p.table.RankOf(int(o.send.stage)), o.send.column}
			o.waits = !p.passed(o.needed)
		}
		return o
	}
	for _, a := range c.actions {
		input, at, exists := p.inputOf(a)
		if exists && !p.passed(at) {
			o.waits, o.needed, o.waiter, o.input = true, at, a, input
			return o
		}
	}
	return o
}

// sendFor returns the send that a receive waits for; nothing else waits.
func (p *progress) sendFor(c communication) (communication, bool) {
	if !c.op.isTransfer() || c.op.isSend() {
		return communication{}, false
	}
	kind := c.op.edge()
	from, _ := kind.from(int(c.stage), p.table.NumStages)
	return communication{
		stage: int32(from), op: sendOn(kind), microbatch: c.microbatch,
		column: p.sends[kind][p.visit(from, int(c.microbatch))],
	}, true
}

// inputOf returns the action that makes the input of another one, if there is one.
func (p *progress) inputOf(a Action) (Action, spot, bool) {
	kind, ok := a.Type.edge()
	if !ok {
		return Action{}, spot{}, false
	}
	from, ok := kind.from(int(a.Stage), p.table.NumStages)
	if !ok {
		return Action{}, spot{}, false
	}
	column := p.steps[kind][p.visit(from, int(a.Microbatch))]
	return p.step(int(kind), from, int(a.Microbatch)), spot{p.table.RankOf(from), column}, true
}

func (p *progress) passed(s spot) bool {
	c, ok := p.next(s.rank, p.stands[s.rank])
	return !ok || c.column > s.column
}

// deadlock explains why a rank doesn't get on: following the waits comes back to a
// rank that was seen before, and those between wait in a circle.
func (p *progress) deadlock(rank int) error {
	position := make([]int, p.table.NumRanks()) // in the chain, from 1
	var chain []obstacle
	for position[rank] == 0 {
		o := p.obstacle(rank)
		chain = append(chain, o)
		position[rank] = len(chain)
		rank = o.needed.rank
	}
	circle := chain[position[rank]-1:]

	var text strings.Builder
	for i, o := range circle {
		if i == cycleShown {
			fmt.Fprintf(&text, "\n  and so on over %d more ranks", len(circle)-cycleShown)
			break
		}
		fmt.Fprintf(&text, "\n  %v: %v", o.cell.spot, o)
	}
	return p.failAt(circle[0].cell.spot, "", ErrDeadlock, "these cells wait in a circle%s", text.String())
}

func (o obstacle) String() string {
	if o.cell.actions == nil {
		return fmt.Sprintf("%v needs %v in %v", o.cell.other, o.send, o.needed)
	}
	return fmt.Sprintf("%v needs the output of %v in %v", o.waiter, o.input, o.needed)
}
