package scheduler

import "fmt"

// Order returns a rank's order as Megatron writes it, and as Transformer Engine takes
// it for its CUDA graphs: c+1 for a forward of the rank's chunk c, −(c+1) for a
// backward. Megatron derives it from its table of (microbatch, chunk) visits, in which
// the backwards count their chunks from the last one, c' = v−1−c: so its formula for
// the same number is c'−v.
//
// The order holds no microbatches, so each chunk must take them in turn, forwards and
// backwards. It fails with ErrSpec for what the order cannot say: placements other
// than loop, split backwards and overlapped pairs, and microbatches in another order.
func Order(t *Table, rank int) ([]int, error) {
	fail := func(format string, args ...any) ([]int, error) {
		return nil, fmt.Errorf("%w: Megatron's order: %s", ErrSpec, fmt.Sprintf(format, args...))
	}
	switch {
	case rank < 0 || rank >= t.NumRanks():
		return fail("rank %d, but the ranks are 0 to %d", rank, t.NumRanks()-1)
	case t.Placement != Loop:
		return fail("placement %v, but chunk c of a rank must be stage c·ranks + rank: only placement loop is so", t.Placement)
	}
	row := t.Ranks[rank]
	next := map[int]int32{} // the microbatch that comes next, by what stands in the order
	order := make([]int, 0, len(row))
	for i, a := range row {
		id := t.Chunk(int(a.Stage)) + 1
		switch {
		case t.RankOf(int(a.Stage)) != rank:
			return fail("%v is on rank %d, but stage %d is on rank %d\n%s", a, rank, a.Stage, t.RankOf(int(a.Stage)), t.grid(rank, i, ""))
		case a.Type == B:
			id = -id
		case a.Type != F:
			return fail("%v splits a backward, and the order has only whole ones\n%s", a, t.grid(rank, i, ""))
		case a.Overlap:
			return fail("%v runs together with the next action, and the order has no pairs\n%s", a, t.grid(rank, i, ""))
		}
		if a.Microbatch != next[id] {
			return fail("%v stands where microbatch %d is due, and the order has only chunks\n%s", a, next[id], t.grid(rank, i, ""))
		}
		next[id]++
		order = append(order, id)
	}
	return order, nil
}

// FromOrder makes a table of the orders of all ranks, and checks it: its errors are
// ErrSpec for numbers that are no chunk, and those of Check.
func FromOrder(orders [][]int) (*Table, error) {
	t := &Table{ForwardOnly: true, Ranks: make([][]Action, 0, len(orders))}
	chunks, actions := 0, 0
	for rank, order := range orders {
		for i, id := range order {
			// Each chunk of a rank stands in its order, so there can't be more of them.
			if id == 0 || id < -len(order) || id > len(order) {
				return nil, fmt.Errorf("%w: Megatron's order of rank %d, position %d: %d, want c+1 or −(c+1) for a chunk c",
					ErrSpec, rank, i, id)
			}
			chunks = max(chunks, id, -id)
		}
		if actions += len(order); actions > MaxActions {
			return nil, fmt.Errorf("%w: more than %d actions", ErrTable, MaxActions)
		}
	}
	if chunks > MaxActions/max(1, len(orders)) {
		return nil, fmt.Errorf("%w: ranks %d, chunks %d make more than %d stages", ErrTable, len(orders), chunks, MaxActions)
	}
	for rank, order := range orders {
		row := make([]Action, 0, len(order))
		next := map[int]int32{}
		for _, id := range order {
			chunk, typ := id-1, F
			if id < 0 {
				chunk, typ = -id-1, B
			}
			row = append(row, Action{Stage: int32(chunk*len(orders) + rank), Type: typ, Microbatch: next[id]})
			next[id]++
		}
		t.addRow(row)
	}
	t.NumStages = chunks * len(orders)
	if _, err := Check(t); err != nil {
		return nil, err
	}
	return t, nil
}
