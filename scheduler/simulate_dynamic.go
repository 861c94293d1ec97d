package scheduler

import (
	"fmt"
	"slices"
)

// SimulateDynamic plays a dynamic order: whenever a rank is free, its [Dispatcher] says
// what it begins. It returns the orders that came out as a table, whose actions are those
// of the priorities' and whose schedule is theirs "as played", and their times. When an
// action begins, the rank of the neighbour that its output goes to learns of it as soon as a
// message gets there.
//
// It fails with ErrCosts for costs, links or credits that are impossible, and with
// ErrDeadlock where an edge has no credit at all.
func (m Machine) SimulateDynamic(r *Priorities) (*Table, *Timeline, error) {
	if err := m.checkCredits(r.table); err != nil {
		return nil, nil, err
	}
	p := make(dispatched, len(r.ranks))
	for rank := range p {
		p[rank] = r.Dispatcher(rank)
	}
	l := newLoop(m, r.table, r.edges, p)
	if err := l.run(); err != nil {
		return nil, nil, err
	}
	for rank, d := range p {
		if a, left := d.First(); left {
			return nil, nil, l.stuck(rank, a)
		}
	}
	l.timeline.Summarise()
	l.table.Schedule += ", as played"
	return l.table, l.timeline, nil
}

// PlayDynamic plays the dynamic order that follows a table within a bound, and checks the
// order that comes out.
func (m Machine) PlayDynamic(t *Table, bound int) (*Table, *Report, *Timeline, error) {
	r, err := NewPriorities(t, bound)
	if err != nil {
		return nil, nil, nil, err
	}
	order, timeline, err := m.SimulateDynamic(r)
	if err != nil {
		return nil, nil, nil, err
	}
	report, err := Check(order)
	return order, report, timeline, err
}

// DynamicBound is the bound of a dynamic order that follows the table of the report: what
// was asked for (0: nothing was), else as much as a rank of the table holds.
func (r *Report) DynamicBound(asked int) int {
	if asked > 0 {
		return asked
	}
	return slices.Max(r.PeakInFlight)
}

// dispatched is the policy of a dynamic order.
type dispatched []*Dispatcher

func (p dispatched) next(rank int, can func(Action) bool) []Action {
	if a, ok := p[rank].Next(can); ok {
		return []Action{a}
	}
	return nil
}

func (p dispatched) begin(rank int, a Action)   { p[rank].Begin(a) }
func (p dispatched) end(rank int, a Action)     { p[rank].End(a) }
func (p dispatched) arrived(rank int, a Action) { p[rank].Arrived(a) }
func (p dispatched) coming(rank int, a Action)  { p[rank].ExpectInput(a) }

// stuck says what a rank that has not ended would begin next.
func (l *loop) stuck(rank int, a Action) error {
	text := fmt.Sprintf("rank %d: %v is next", rank, a)
	if e, ok := l.full(a); ok {
		edge := fmt.Sprintf("the %s edge of chunk %d", e.Kind, e.From)
		if e.IsSkip() {
			edge = fmt.Sprintf("the %s direction of skip edge %v", e.Kind, e.skip())
		}
		text += fmt.Sprintf(", and %s has %d credits: give it at least 1", edge, l.Credits.OfEdge(e))
	}
	return fmt.Errorf("%w: no rank has anything that it can begin\n  %s", ErrDeadlock, text)
}
