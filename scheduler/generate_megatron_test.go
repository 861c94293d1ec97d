package scheduler

import (
	"fmt"
	"slices"
	"testing"
)

// TestOrder holds the orders of 2 ranks with 2 chunks, and 5 microbatches in groups of
// 3: rank 0's is the example of Megatron's documentation, and rank 1's follows with
// its warm-up of 3.
func TestOrder(t *testing.T) {
	table := generate(t, Spec{Schedule: Interleaved, Ranks: 2, Chunks: 2, Microbatches: 5, MicrobatchGroupSize: 3})
	for rank, want := range []string{
		"[1 1 1 2 2 2 -2 1 -2 1 -2 2 -1 2 -1 -1 -2 -2 -1 -1]",
		"[1 1 1 2 -2 2 -2 2 -2 1 -1 1 -1 2 -1 2 -2 -2 -1 -1]",
	} {
		if got := fmt.Sprint(orderOf(table, rank)); got != want {
			t.Errorf("rank %d: %s\nwant    %s", rank, got, want)
		}
	}
}

// TestOrderFromVisits compares with Megatron's way to an order: forwards and backwards
// by the formulas c+1 and c'−v from the table of visits, after the warm-up in turn.
func TestOrderFromVisits(t *testing.T) {
	spec := Spec{Schedule: Interleaved, Ranks: 4, Chunks: 3, Microbatches: 11, MicrobatchGroupSize: 6}
	table := generate(t, spec)
	visits := spec.visits()
	for rank := range spec.Ranks {
		warmUp := min(2*(spec.Ranks-rank-1)+(spec.Chunks-1)*spec.MicrobatchGroupSize, len(visits))
		var want []int
		for i := range len(visits) + warmUp {
			if i < len(visits) {
				want = append(want, visits[i].local+1)
			}
			if i >= warmUp {
				want = append(want, visits[i-warmUp].local-spec.Chunks)
			}
		}
		if got := orderOf(table, rank); !slices.Equal(got, want) {
			t.Errorf("rank %d: %v\nwant    %v", rank, got, want)
		}
	}
}

// orderOf returns a rank's order as Megatron writes it: c+1 for a forward of the rank's
// chunk c, −(c+1) for a backward. Megatron derives it from its table of (microbatch,
// chunk) visits, in which the backwards count their chunks from the last one,
// c' = v−1−c: so its formula for the same number is c'−v.
func orderOf(t *Table, rank int) []int {
	var order []int
	for _, a := range t.Ranks[rank] {
		id := t.LocalChunk(int(a.Chunk)) + 1
		if a.Type == B {
			id = -id
		}
		order = append(order, id)
	}
	return order
}
