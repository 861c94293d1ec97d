package scheduler

import (
	"fmt"
	"slices"
)

// Priorities is what the ranks of a work-conserving order (dynamic) go by: priorities,
// which are the places that the actions have in a table, and a bound on what each rank
// holds. The order itself comes out as the ranks run; each decides alone, with a
// [Dispatcher]. A Priorities is not changed once it is made, so that ranks may share it.
//
// The actions are the table's. Pairs that overlap are taken apart, since a rank that
// may run what is ready has no need to wait for both inputs at once.
type Priorities struct {
	table *Table
	costs Costs
	ranks []ranked
}

// ranked is one rank's part.
type ranked struct {
	row    []Action // no pairs
	bound  int
	chunks []int32          // the rank's, ascending
	lanes  [][numLanes]lane // by place in chunks
}

// A chunk's actions go through three lanes, each in ascending microbatch order.
const (
	laneF = iota
	laneI // B, too
	laneW
	numLanes
)

func laneOf(t Type) int {
	switch t {
	case F:
		return laneF
	case W:
		return laneW
	}
	return laneI
}

// lane lists the positions that a chunk's actions of one kind have in the row.
type lane []int32

// NewPriorities makes the priorities of a table for ranks that hold at most bound[rank]
// outputs, each from a chunk's F to the end of its B or W. The bound may be above what
// the table holds, which leaves the ranks more to choose from, or below. It is at least
// the number of chunks that the rank holds, or no microbatch could pass; where there are
// no backwards, nothing is held and the bound doesn't matter.
//
// costs are what the ranks expect their actions to take, for what [Dispatcher.Next] says
// about waiting; nil means UnitCosts.
//
// It fails with ErrSpec for a bad bound, with ErrOrder for a table that does not take
// the microbatches through each chunk in ascending order (its sums would round
// differently), and else as [Check] does, but for deadlocks: any order will do for
// priorities.
func NewPriorities(t *Table, bound []int, costs Costs) (*Priorities, error) {
	if _, err := newIndex(t); err != nil {
		return nil, err
	}
	if len(bound) != t.NumRanks() {
		return nil, fmt.Errorf("%w: %d bounds for %d ranks: give one for each", ErrSpec, len(bound), t.NumRanks())
	}
	if costs == nil {
		costs = UnitCosts
	}
	r := &Priorities{table: t, costs: costs, ranks: make([]ranked, t.NumRanks())}
	for s := range t.NumChunks {
		rk := &r.ranks[t.RankOf(s)]
		rk.chunks = append(rk.chunks, int32(s))
	}
	for rank := range r.ranks {
		rk := &r.ranks[rank]
		rk.bound = bound[rank]
		if rk.bound < len(rk.chunks) && !t.ForwardOnly {
			return nil, fmt.Errorf("%w: rank %d holds %d chunks, and may hold %d outputs: raise its bound to at least %d",
				ErrSpec, rank, len(rk.chunks), rk.bound, len(rk.chunks))
		}
		if err := rk.rank(t, rank); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// rank notes the places of a row's actions.
func (rk *ranked) rank(t *Table, rank int) error {
	rk.row = slices.Clone(t.Ranks[rank])
	rk.lanes = make([][numLanes]lane, len(rk.chunks))
	weights := make([]int32, len(rk.chunks)) // the microbatch whose weight gradient is next
	for i := range rk.row {
		a := &rk.row[i]
		a.Overlap = false
		k := rk.place(a.Chunk)
		l := &rk.lanes[k][laneOf(a.Type)]
		ascends := len(*l) == 0 || rk.row[(*l)[len(*l)-1]].Microbatch < a.Microbatch
		if a.Type == B || a.Type == W {
			ascends = ascends && a.Microbatch == weights[k]
			weights[k]++
		}
		if !ascends {
			return fmt.Errorf("%w: %v on rank %d: a dynamic order takes the microbatches through each chunk in ascending order, and so must its table\n%s",
				ErrOrder, *a, rank, t.grid(rank, i, ""))
		}
		*l = append(*l, int32(i))
	}
	return nil
}
