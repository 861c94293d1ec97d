package draw

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/scheduler"
)

// A table that is cut at its exchanges of tokens (scheduler.Table.Cut) has rows of parts and exchanges. A drawing shows
// the parts on the lane of their rank, and the exchanges below it, on the rank's link: so one sees what they hide behind.

// divide moves the exchanges of a lane from its actions to Exchanges, and lets its parts stand alone.
func (l *Lane) divide() {
	if len(l.Start) != len(l.Actions) || len(l.End) != len(l.Actions) || !slices.ContainsFunc(l.Actions, isPart) {
		return // check refuses the lengths
	}
	own := Lane{Name: l.Name}
	for i, a := range l.Actions {
		a.Overlap = a.Overlap && !isPart(a)
		if a.Type.IsExchange() {
			own.Exchanges = append(own.Exchanges, Exchange{a, l.Start[i], l.End[i]})
			continue
		}
		own.Actions, own.Start, own.End = append(own.Actions, a), append(own.Start, l.Start[i]), append(own.End, l.End[i])
	}
	*l = own
}

func isPart(a scheduler.Action) bool { return a.Part > 0 }

// times returns the times of a lane by the positions of its row of the table, which divide has taken apart.
func (l *Lane) times(row []scheduler.Action) (start, end []float64, err error) {
	if len(l.Exchanges) == 0 {
		return l.Start, l.End, nil
	}
	actions, exchanges := 0, 0
	for _, a := range row {
		switch {
		case a.Type.IsExchange() && exchanges < len(l.Exchanges):
			x := l.Exchanges[exchanges]
			start, end = append(start, x.Start), append(end, x.End)
			exchanges++
		case !a.Type.IsExchange() && actions < len(l.Actions):
			start, end = append(start, l.Start[actions]), append(end, l.End[actions])
			actions++
		}
	}
	if len(start) != len(l.Actions)+len(l.Exchanges) || len(start) != len(row) {
		return nil, nil, fmt.Errorf("%w: its table has a row of %d actions, but %s has %d and %d exchanges of tokens", ErrChart, len(row),
			l.Name, len(l.Actions), len(l.Exchanges))
	}
	return start, end, nil
}

// checkExchanges checks the exchanges of a lane.
func (l *Lane) checkExchanges() error {
	for i, x := range l.Exchanges {
		switch a := x.Action; {
		case !a.Type.IsExchange() || a.Chunk < 0 || a.Microbatch < 0:
			return fmt.Errorf("exchange %d: %v is not a valid exchange of tokens", i, a)
		case !isTime(x.Start) || !isTime(x.End) || x.End < x.Start:
			return fmt.Errorf("exchange %d (%v): from %v to %v, want numbers from 0 to %v", i, a, x.Start, x.End, float64(maxTime))
		case i > 0 && x.Start < l.Exchanges[i-1].Start:
			return fmt.Errorf("exchange %d (%v): it starts at %v, before the previous exchange at %v: sort them by start", i, a, x.Start,
				l.Exchanges[i-1].Start)
		}
	}
	return nil
}

// exchanged returns how long tokens traveled, on all links together, and how long of that the ranks computed meanwhile. What
// travels at the same time on one link counts once.
func (c *Chart) exchanged() (took, hidden float64) {
	for r := range c.Lanes {
		l, next, reach := &c.Lanes[r], 0, 0.0
		for _, x := range l.Exchanges {
			from := max(x.Start, reach)
			if x.End <= from {
				continue
			}
			reach = x.End
			took += x.End - from
			for next < len(l.End) && l.End[next] <= from {
				next++
			}
			for i := next; i < len(l.Start) && l.Start[i] < x.End; i++ {
				if end := min(l.End[i], x.End); end > max(l.Start[i], from) {
					hidden += end - max(l.Start[i], from)
					from = end
				}
			}
		}
	}
	return took, hidden
}

// link returns the exchanges of a lane as a lane of their own, for drawings in which they have a row like a rank's.
func (l *Lane) link() *Lane {
	own := &Lane{Name: "link of " + l.Name}
	for _, x := range l.Exchanges {
		own.Actions, own.Start, own.End = append(own.Actions, x.Action), append(own.Start, x.Start), append(own.End, x.End)
	}
	return own
}

// rows returns the lanes of a chart, each with its link below it if the chart has exchanges.
func (c *Chart) rows() (rows []*Lane) {
	linked := c.exchanges()
	for i := range c.Lanes {
		if rows = append(rows, &c.Lanes[i]); linked {
			rows = append(rows, c.Lanes[i].link())
		}
	}
	return rows
}

// exchanges reports whether a chart has exchanges.
func (c *Chart) exchanges() bool {
	return slices.ContainsFunc(c.Lanes, func(l Lane) bool { return len(l.Exchanges) > 0 })
}

// lastPart returns the position of the last part of the action that a part at a position belongs to. All of them run as
// one, beside those of at most one action of the other direction.
func (l *Lane) lastPart(i int) int {
	last := i
	for k := i + 1; l.Actions[i].Part > 0 && k < len(l.Actions); k++ {
		a, b := l.Actions[k], l.Actions[last]
		switch {
		case a.Part == b.Part+1 && a.Chunk == b.Chunk && a.Type == b.Type && a.Microbatch == b.Microbatch:
			last = k
		case a.Part == 0 || edge(a.Type) == edge(b.Type):
			return last
		}
	}
	return last
}
