package scheduler

import (
	"fmt"
	"math"
)

// fewVisits is the number of microbatch-chunk pairs that a measured table with fewer actions may
// claim.
const fewVisits = 1 << 20

// measured is a step together with what its actions waited for.
type measured struct {
	*Step
	edges *Edges
	// at is the place of the action whose output travels over an edge of a kind, by its chunk and
	// microbatch; rank −1: the action has not ended.
	at [2][]place
	// takes is, if credits are known, the position of a chunk's n-th action that consumes from
	// edges of a kind.
	takes [2][][]int32
	// sent is the index of each action among its chunk's actions that send over a kind of edge.
	sent [2][]int32
	// fastest is, for two ranks, the shortest time between the end of an action on one and the
	// start of an action on the other that takes its output. A message takes at most that long.
	fastest map[[2]int]float64
	// together is, for each action with times, the positions of the first and the last action that run as one with it.
	together [][][2]int32
}

// measure examines a step's times. A rank may have fewer times than actions.
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
			kind, ok := a.edge()
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
	m.together = make([][][2]int32, len(s.MS))
	for r, row := range s.MS {
		m.together[r] = make([][2]int32, len(row))
		for i := 0; i < len(row); {
			end := min(i+Width(t.Ranks[r], i), len(row))
			for k := i; k < end; k++ {
				m.together[r][k] = [2]int32{int32(i), int32(end - 1)}
			}
			i = end
		}
	}
	for r, row := range s.MS {
		for i := 0; i < len(row); {
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
			_, last := m.partners(place{r, i})
			i = last + 1
		}
	}
	return m, nil
}

func (m *measured) action(p place) Action { return m.Table.Ranks[p.rank][p.position] }

// start and end are the times of an action or, if it is one of several that run as one, of all.
func (m *measured) start(p place) float64 {
	first, _ := m.partners(p)
	return m.MS[p.rank][first][0]
}

func (m *measured) end(p place) float64 {
	_, last := m.partners(p)
	return m.MS[p.rank][last][1]
}

// partners returns the actions that run as one with the action at a place.
func (m *measured) partners(p place) (first, last int) {
	span := m.together[p.rank][p.position]
	return int(span[0]), int(span[1])
}

// before returns the action before a given one, or before its pair, on its rank.
func (m *measured) before(p place) (place, bool) {
	first, _ := m.partners(p)
	return place{p.rank, first - 1}, first > 0
}

// eachInput calls f for the actions whose outputs the given action, or its pair, takes.
func (m *measured) eachInput(p place, f func(from place)) {
	first, last := m.partners(p)
	for i := first; i <= last; i++ {
		a := m.Table.Ranks[p.rank][i]
		kind, ok := a.edge()
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

// eachCredit calls f for the actions whose starts returned the credits that the given action, or
// its pair, took.
func (m *measured) eachCredit(p place, f func(from place)) {
	if m.Credits == nil {
		return
	}
	first, last := m.partners(p)
	for i := first; i <= last; i++ {
		a := m.Table.Ranks[p.rank][i]
		kind, ok := a.edge()
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

// message returns an upper limit of a message's time from one rank to another.
func (m *measured) message(from, to int) float64 { return m.fastest[[2]int{from, to}] }

// cause is the last condition that an action waited for.
type cause struct {
	why  Why
	from place
	at   float64 // time at which the condition was met
}

// latest returns the last condition that an action waited for. It is not later than the action's
// start, except by the error of the clocks.
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

// later reports whether a time is later than another by more than the rounding of sums. If two
// conditions are met at the same time, the rank's own action comes first, then credits, whose time
// is known, then messages.
func later(a, b float64) bool { return a > b+1e-9*max(1, math.Abs(b)) || math.IsInf(b, -1) }
