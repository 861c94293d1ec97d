package ui

import (
	"cmp"
	"slices"

	"github.com/troupe-ml/troupe/scheduler"
)

// cause is why a rank did nothing for a while.
type cause uint8

const (
	causeWarmup cause = iota
	causeWait
	causeStarved
	causeCredit
	causeOptimizer
	causeCooldown
)

var causeNames = [...]string{"warm-up", "waiting for a rank", "starved", "credit", "optimizer", "cool-down"}

// gap is a time in which a rank did nothing.
type gap struct {
	rank       int32
	start, end float64
	cause      cause
	from       int32            // the rank that it waited for; −1: none
	needs      scheduler.Action // of that rank
}

// reasons are why a step took as long as it did.
type reasons struct {
	path       [][]bool // by rank and action: on the critical path
	critical   int
	criticalMS float64
	gaps       []gap
	sums       [][]float64 // ms by rank and cause
	waits      [][3]float64
}

// visitKey finds an action by what it computes: F apart from the gradients.
type visitKey struct {
	backward bool
	chunk    int32
	micro    int32
}

type placeOf struct{ rank, at int32 }

// analyse follows the step back from its end, and names the cause of each gap.
func (m *measured) analyse() *reasons {
	why := &reasons{path: make([][]bool, len(m.times)), sums: make([][]float64, len(m.times))}
	where := make(map[visitKey]placeOf)
	var last placeOf
	end := -1.0
	for r, row := range m.table.Ranks {
		why.path[r], why.sums[r] = make([]bool, len(row)), make([]float64, len(causeNames))
		for i, a := range row {
			if a.Type != scheduler.W {
				where[visitKey{a.Type != scheduler.F, a.Chunk, a.Microbatch}] = placeOf{int32(r), int32(i)} //nolint:gosec // within the limits of a table
			}
			if e := m.times[r][i][1]; e > end {
				end, last = e, placeOf{int32(r), int32(i)} //nolint:gosec // as above
			}
		}
	}
	var edges *scheduler.Edges
	if m.table.NumChunks > 0 {
		edges, _ = m.table.Edges() // what has been checked has them
	}
	needs := func(a scheduler.Action, each func(p placeOf)) {
		if a.Type == scheduler.W || edges == nil {
			return
		}
		kind := scheduler.ForwardEdge
		if a.Type != scheduler.F {
			kind = scheduler.BackwardEdge
		}
		for _, e := range edges.Ins(kind, a.Chunk) {
			if p, ok := where[visitKey{kind == scheduler.BackwardEdge, e.From, a.Microbatch}]; ok {
				each(p)
			}
		}
	}
	endOf := func(p placeOf) float64 { return m.times[p.rank][p.at][1] }

	// The critical path: whatever ended last of what an action had to wait for.
	for at, more := last, true; more; {
		why.path[at.rank][at.at] = true
		why.critical++
		span := m.times[at.rank][at.at]
		why.criticalMS += span[1] - span[0]
		next, ended := placeOf{}, -1.0
		if at.at > 0 {
			next = placeOf{at.rank, at.at - 1}
			ended = endOf(next)
		}
		needs(m.table.Ranks[at.rank][at.at], func(p placeOf) {
			if e := endOf(p); e > ended && e <= span[0]+1e-6 {
				next, ended = p, e
			}
		})
		more = ended >= 0 && !why.path[next.rank][next.at]
		at = next
	}

	waited := make(map[[2]int32]float64)
	for r, row := range m.table.Ranks {
		before := 0.0
		for i, a := range row {
			start := m.times[r][i][0]
			if start > before {
				g := gap{rank: int32(r), start: before, end: start, from: -1, needs: scheduler.Action{Chunk: -1, Microbatch: -1}} //nolint:gosec // as above
				g.cause = causeStarved
				came := before
				needs(a, func(p placeOf) {
					if e := endOf(p); int(p.rank) != r && e > came {
						came, g.from, g.needs = e, p.rank, m.table.Ranks[p.rank][p.at]
					}
				})
				switch {
				case i == 0:
					g.cause = causeWarmup
				case g.from >= 0:
					g.cause = causeWait
				}
				if g.from >= 0 {
					waited[[2]int32{int32(r), g.from}] += g.end - g.start //nolint:gosec // as above
				}
				why.add(g)
			}
			before = max(before, m.times[r][i][1])
		}
		if end > before {
			why.add(gap{rank: int32(r), start: before, end: end, cause: causeCooldown, from: -1, needs: scheduler.Action{Chunk: -1, Microbatch: -1}}) //nolint:gosec // as above
		}
	}
	why.few(end)
	for pair, ms := range waited {
		why.waits = append(why.waits, [3]float64{float64(pair[0]), float64(pair[1]), ms})
	}
	slices.SortFunc(why.waits, func(a, b [3]float64) int {
		return cmp.Or(cmp.Compare(b[2], a[2]), cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
	why.waits = why.waits[:min(len(why.waits), 12)]
	return why
}

func (why *reasons) add(g gap) {
	why.sums[g.rank][g.cause] += g.end - g.start
	why.gaps = append(why.gaps, g)
}

// few keeps the longest gaps, where there are too many to be told, in the order of ranks.
func (why *reasons) few(makespan float64) {
	least := makespan / 20_000
	why.gaps = slices.DeleteFunc(why.gaps, func(g gap) bool { return g.end-g.start < least })
	for len(why.gaps) > limitGaps {
		least *= 2
		why.gaps = slices.DeleteFunc(why.gaps, func(g gap) bool { return g.end-g.start < least })
	}
}
