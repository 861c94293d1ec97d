package scheduler

import "fmt"

// deadlock explains why a rank is stuck. The action that it waits for stands in some rank's order
// after an action that waits too. So following the waits leads back to a rank that was seen before,
// and the waits in between form a cycle.
func (p *player) deadlock(rank int) error {
	position := make([]int, p.table.NumRanks()) // in the chain of waits, from 1
	var chain []wait
	for position[rank] == 0 {
		chain = append(chain, p.waitOf(rank))
		position[rank] = len(chain)
		rank = chain[len(chain)-1].needed.rank
	}
	return &fault{
		table: p.table, kind: ErrDeadlock, text: "these actions wait for each other in a cycle",
		at: place{rank, p.next[rank]}, cycle: chain[position[rank]-1:],
	}
}

// waitOf returns what a waiting rank needs next: an input or a credit.
func (p *player) waitOf(rank int) wait {
	at := place{rank, p.next[rank]}
	row := p.table.Ranks[rank]
	for _, a := range row[at.position : at.position+Width(row, at.position)] {
		if in, ok := p.counterpart(a); ok && !p.started(in) {
			return wait{at, fmt.Sprintf("%v needs %v", a, p.action(in)), in}
		}
		kind, ok := a.edge()
		if !ok {
			continue
		}
		for _, e := range p.index.edges.Ins(kind, a.Chunk) {
			if in := p.input(e, a); !p.started(in) {
				return wait{at, fmt.Sprintf("%v needs the output of %v", a, p.action(in)), in}
			}
		}
		if p.Credits == nil {
			continue
		}
		for _, e := range p.index.edges.Outs(kind, a.Chunk) {
			if taker, ok := p.creditFrom(e); ok && !p.started(taker) {
				return wait{at, fmt.Sprintf("%v needs one of the %d %s credits of %s; the next one returns with %v",
					a, p.Credits.OfEdge(e), kind, e.owner(), p.action(taker)), taker}
			}
		}
	}
	return wait{at, fmt.Sprintf("%v needs a message that never arrives", row[at.position]), at}
}

func (p *player) action(at place) Action { return p.table.Ranks[at.rank][at.position] }
