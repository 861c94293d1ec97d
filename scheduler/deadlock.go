package scheduler

import (
	"fmt"
	"strings"
)

// cycleShown bounds how many waits of a deadlock an error lists.
const cycleShown = 8

// deadlock explains why a rank doesn't get on. What it waits for stands in some
// rank's order behind an action that waits too, so following the waits comes
// back to a rank that was seen before: those between wait in a circle.
func (p *player) deadlock(rank int) error {
	position := make([]int, p.table.NumRanks()) // in the chain, from 1
	var chain []int
	for position[rank] == 0 {
		chain = append(chain, rank)
		position[rank] = len(chain)
		rank = p.obstacle(rank).rank
	}
	circle := chain[position[rank]-1:]

	var text strings.Builder
	for i, r := range circle {
		if i == cycleShown {
			fmt.Fprintf(&text, "  and so on over %d more ranks\n", len(circle)-cycleShown)
			break
		}
		fmt.Fprintf(&text, "  %s\n", p.explain(r))
	}
	return fmt.Errorf("%w: these actions wait in a circle\n%s%s",
		ErrDeadlock, text.String(), p.table.grid(rank, p.next[rank], ""))
}

// obstacle returns the action that a waiting rank needs next.
func (p *player) obstacle(rank int) place {
	_, needed, _ := p.lacking(rank)
	return needed
}

// lacking returns the action of a waiting rank that cannot start, and the action that
// it needs: for its input, or for a credit.
func (p *player) lacking(rank int) (a Action, needed place, credit bool) {
	row, i := p.table.Ranks[rank], p.next[rank]
	for _, a := range row[i : i+Width(row, i)] {
		if in, ok := p.input(a); ok && !p.started(in) {
			return a, in, false
		}
		if taker, ok := p.creditFrom(a); ok && !p.started(taker) {
			return a, taker, true
		}
	}
	return row[i], place{}, false // it is not waiting
}

func (p *player) explain(rank int) string {
	a, at, credit := p.lacking(rank)
	needed := p.table.Ranks[at.rank][at.position]
	if !credit {
		return fmt.Sprintf("rank %d: %v needs the output of %v on rank %d", rank, a, needed, at.rank)
	}
	kind, _ := a.Type.edge()
	return fmt.Sprintf("rank %d: %v needs one of the %d %s credits of stage %d, the next comes back with %v on rank %d",
		rank, a, p.Credits.Of(kind, int(a.Stage)), kind, a.Stage, needed, at.rank)
}
