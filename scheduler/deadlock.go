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
	a := p.table.Ranks[rank][p.next[rank]]
	if in, ok := p.input(a); ok && !p.started(in) {
		return in
	}
	taker, _ := p.creditFrom(a)
	return taker
}

func (p *player) explain(rank int) string {
	a := p.table.Ranks[rank][p.next[rank]]
	obstacle := p.obstacle(rank)
	needed := p.table.Ranks[obstacle.rank][obstacle.position]
	if in, ok := p.input(a); ok && in == obstacle {
		return fmt.Sprintf("rank %d: %v needs the output of %v on rank %d", rank, a, needed, obstacle.rank)
	}
	kind, _ := a.Type.edge()
	return fmt.Sprintf("rank %d: %v needs one of the %d %s credits of stage %d, the next comes back with %v on rank %d",
		rank, a, p.credits.Of(kind, int(a.Stage)), kind, a.Stage, needed, obstacle.rank)
}
