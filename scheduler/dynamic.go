package scheduler

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/words"
)

// Priorities is what the ranks of a dynamic order go by: the places that the actions have
// in a table, and a bound on what each rank holds. The order itself comes out as the ranks
// run; each decides alone, with a [Dispatcher]. A Priorities is not changed once it is
// made, so that ranks may share it.
//
// The actions are the table's. Pairs that overlap are taken apart, since a rank that
// may run what is ready has no need to wait for both inputs at once.
type Priorities struct {
	table *Table
	edges *Edges
	bound int
	ranks []ranked
}

// ranked is one rank's part.
type ranked struct {
	row   []Action          // no pairs
	lanes [][numLanes][]int // by the chunk's place on the rank: positions in the row
}

// NewPriorities makes the priorities of a table for ranks that hold at most bound outputs,
// each from a chunk's F to the end of its B or W. The bound may be above what the table
// holds, which leaves the ranks more to choose from, or below. It is at least the number
// of chunks that a rank holds, or no microbatch could pass; where there are no backwards,
// nothing is held and the bound doesn't matter.
//
// It fails with ErrSpec for a bad bound, with ErrOrder for a table that does not take
// the microbatches through each chunk in ascending order (its sums would round
// differently), and else as [Check] does, but for deadlocks: any order will do for
// priorities.
func NewPriorities(t *Table, bound int) (*Priorities, error) {
	ix, err := newIndex(t)
	if err != nil {
		return nil, err
	}
	r := &Priorities{table: t, edges: ix.edges, bound: bound, ranks: make([]ranked, t.NumRanks())}
	for rank := range r.ranks {
		p := newProgress(t, rank, bound)
		if n := len(p.chunks); bound < n && !t.ForwardOnly {
			return nil, fmt.Errorf("%w: rank %d holds %s, and may hold %s: raise the bound to at least %d", ErrSpec, rank, words.Plural(n, "chunk"), words.Plural(bound, "output"), n)
		}
		rk := &r.ranks[rank]
		rk.row, rk.lanes = slices.Clone(t.Ranks[rank]), make([][numLanes][]int, len(p.chunks))
		for i := range rk.row {
			a := &rk.row[i]
			a.Overlap = false
			k, l := p.place(a.Chunk), laneOf(a.Type)
			lane, c := &rk.lanes[k][l], &p.of[k]
			ascends := len(*lane) == 0 || rk.row[(*lane)[len(*lane)-1]].Microbatch < a.Microbatch
			if (a.Type == B || a.Type == W) && c.weights != int(a.Microbatch) || !ascends {
				return nil, fmt.Errorf("%w: %v on rank %d: a dynamic order takes the microbatches through each chunk in ascending order, and so must its table\n%s",
					ErrOrder, *a, rank, t.grid(rank, i, ""))
			}
			*lane = append(*lane, i)
			p.begin(*a)
		}
	}
	return r, nil
}
