package scheduler

import (
	"fmt"
	"math"
)

// fewVisits is how many of microbatches to chunks a measured table may claim that has fewer actions.
const fewVisits = 1 << 20

// measured is a step with what its actions waited for.
type measured struct {
	*Step
	edges *Edges
	// at is where the action is whose output goes by an edge of a kind, by its chunk and microbatch; rank −1: it
	// has not ended.
	at [2][]place
	// takes is, with credits, the position of the n-th action of a chunk that consumes by the edges of a kind.
	takes [2][][]int32
	// sent is the place of each action among those of its chunk that send by a kind's edges, from 0.
	sent [2][]int32
	// fastest is the least time between the end of an action and the start of one on another rank that takes
	// its output: what a message is known to take at most, by the two ranks.
	fastest map[[2]int]float64
}

// measure looks at a step's times. Their number may be less than the actions of a rank.
func (s *Step) measure() (*measured, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	t := s.Table
	if err := t.checkSizes(); err != nil {
		return nil, err
	}
	if err := (Machine{Credits: s.Credits}).checkCredits(t); err != nil {
		return nil, err
	}
	edges, err := t.Edges()
	if err != nil {
		return nil, err
	}
	m := &measured{Step: s, edges: edges, fastest: make(map[[2]int]float64)}
	for kind := range m.at {
		m.at[kind] = make([]place, t.NumChunks*t.Microbatches)
		for i := range m.at[kind] {
			m.at[kind][i].rank = -1
		}
		m.sent[kind] = make([]int32, t.NumChunks*t.Microbatches)
		m.takes[kind] = make([][]int32, t.NumChunks)
	}
	for r, row := range s.MS {
		for i := range row {
			a := t.Ranks[r][i]
			kind, ok := a.Type.edge()
			if !ok {
				continue
			}
			if t.RankOf(int(a.Chunk)) != r {
				return nil, fmt.Errorf("%w: %v is on rank %d, but chunk %d is on rank %d in placement %v",
					ErrTable, a, r, a.Chunk, t.RankOf(int(a.Chunk)), t.Placement)
			}
			visit := int(a.Chunk)*t.Microbatches + int(a.Microbatch)
			m.at[kind][visit] = place{r, i}
			m.sent[kind][visit] = int32(len(m.takes[kind][a.Chunk]))
			m.takes[kind][a.Chunk] = append(m.takes[kind][a.Chunk], int32(i))
		}
	}
	for r, row := range s.MS {
		for i := range row {
			m.eachInput(place{r, i}, func(from place) {
				if from.rank == r {
					return
				}
				key := [2]int{from.rank, r}
				took := max(0, m.start(place{r, i})-m.end(from))
				if least, known := m.fastest[key]; !known || took < least {
					m.fastest[key] = took
				}
			})
		}
	}
	return m, nil
}

func (m *measured) action(p place) Action { return m.Table.Ranks[p.rank][p.position] }
func (m *measured) start(p place) float64 { return m.MS[p.rank][p.position][0] }
func (m *measured) end(p place) float64   { return m.MS[p.rank][p.position][1] }

// partners are the actions that run as one with that at a place.
func (m *measured) partners(p place) (first, last int) {
	row := m.Table.Ranks[p.rank]
	first, last = p.position, p.position
	if first > 0 && row[first-1].Overlap {
		first--
	}
	if row[first].Overlap && first+1 < len(row) {
		last = first + 1
	}
	return first, min(last, len(m.MS[p.rank])-1)
}

// before is the action before one, or before its pair, on its rank.
func (m *measured) before(p place) (place, bool) {
	first, _ := m.partners(p)
	return place{p.rank, first - 1}, first > 0
}

// eachInput gives the actions whose outputs an action takes, or its pair.
func (m *measured) eachInput(p place, f func(from place)) {
	first, last := m.partners(p)
	for i := first; i <= last; i++ {
		a := m.Table.Ranks[p.rank][i]
		kind, ok := a.Type.edge()
		if !ok {
			continue
		}
		for _, e := range m.edges.Ins(kind, a.Chunk) {
			if from := m.at[kind][int(e.From)*m.Table.Microbatches+int(a.Microbatch)]; from.rank >= 0 {
				f(from)
			}
		}
	}
}

// eachCredit gives the actions that gave back, as they began, the credits which an action took, or its
// pair.
func (m *measured) eachCredit(p place, f func(from place)) {
	if m.Credits == nil {
		return
	}
	first, last := m.partners(p)
	for i := first; i <= last; i++ {
		a := m.Table.Ranks[p.rank][i]
		kind, ok := a.Type.edge()
		if !ok {
			continue
		}
		n := int(m.sent[kind][int(a.Chunk)*m.Table.Microbatches+int(a.Microbatch)])
		for _, e := range m.edges.Outs(kind, a.Chunk) {
			takes := m.takes[kind][e.To]
			if k := n - max(0, m.Credits.OfEdge(e)); k >= 0 && k < len(takes) {
				f(place{m.Table.RankOf(int(e.To)), int(takes[k])})
			}
		}
	}
}

// message is what an output took at most from one rank to another.
func (m *measured) message(from, to int) float64 { return m.fastest[[2]int{from, to}] }

// cause is what an action waited for last.
type cause struct {
	why  Why
	from place
	at   float64 // since when it waits for nothing of the kind
}

// latest is the last of what an action had to wait for. It is not later than its start, but for
// what clocks are wrong by.
func (m *measured) latest(p place) cause {
	best := cause{why: FirstOfAll, at: math.Inf(-1)}
	if b, ok := m.before(p); ok {
		best = cause{SameRank, b, m.end(b)}
	}
	m.eachCredit(p, func(from place) {
		if at := m.start(from); later(at, best.at) {
			best = cause{CreditBack, from, at}
		}
	})
	m.eachInput(p, func(from place) {
		if at := m.end(from) + m.message(from.rank, p.rank); later(at, best.at) {
			best = cause{Message, from, at}
		}
	})
	return best
}

// later reports whether a time is later than another one, by more than what sums of times are rounded by.
// Of what was over at the same time the rank's own action comes first, then credits, of which the
// moment is known, then messages.
func later(a, b float64) bool { return a > b+1e-9*max(1, math.Abs(b)) || math.IsInf(b, -1) }
