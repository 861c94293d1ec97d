package scheduler

import "testing"

// TestRendezvous: where messages go one way at a time, no buffer is needed; where two
// ranks send to each other at the same time, one is.
func TestRendezvous(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		safe bool
	}{
		{Spec{Ranks: 1, Chunks: 3, Microbatches: 4}, true},
		{Spec{Schedule: GPipe, Ranks: 4, Chunks: 1, Microbatches: 8}, true},
		{Spec{Ranks: 4, Chunks: 1, Microbatches: 1}, true},
		{Spec{Ranks: 2, Chunks: 1, Microbatches: 2}, false}, // rank 0 sends 0F1, rank 1 the gradient of 1B0
		{Spec{Ranks: 4, Chunks: 1, Microbatches: 8}, false},
		{Spec{Schedule: BreadthFirst, Ranks: 4, Chunks: 2, Microbatches: 8}, false}, // around the ring
		{Spec{Schedule: ZBV, Ranks: 4, Chunks: 2, Microbatches: 8}, false},
		{Spec{Schedule: DualPipeV, Ranks: 2, Chunks: 2, Microbatches: 4}, false},
		{Spec{Ranks: 4, Chunks: 1, Microbatches: 8, ForwardOnly: true}, true},
	} {
		if got := RendezvousSafe(generate(t, c.spec)); got != c.safe {
			t.Errorf("%+v: %v, want %v", c.spec, got, c.safe)
		}
	}
}
