package scheduler

import (
	"errors"
	"testing"
)

// TestForwards: every placement has a table of forwards for any number of microbatches, in
// which a V of any number of chunks idles no longer than two of its turns take.
func TestForwards(t *testing.T) {
	for _, p := range []Placement{Loop, V, U} {
		for ranks := 1; ranks <= 4; ranks++ {
			for perRank := 1; perRank <= 5; perRank++ {
				chunks, err := p.Chunks(ranks, perRank)
				if err != nil {
					if _, err := Forwards(p, ranks, perRank, 4); !errors.Is(err, ErrSpec) {
						t.Errorf("%v, %d ranks with %d chunks: %v, want ErrSpec", p, ranks, perRank, err)
					}
					continue
				}
				for _, m := range []int{1, 2, 5, 16} {
					table, err := Forwards(p, ranks, perRank, m)
					if err != nil {
						t.Errorf("%v, %d ranks with %d chunks, %d microbatches: %v", p, ranks, perRank, m, err)
						continue
					}
					check(t, table)
					if !table.ForwardOnly || table.Placement != p && ranks > 1 || table.NumChunks != chunks || table.Microbatches != m {
						t.Errorf("%v, %d ranks with %d chunks, %d microbatches: %+v", p, ranks, perRank, m, table)
					}
					if got, most := simulated(t, table, UnitCosts).Makespan, float64((m+4*ranks)*perRank); p == V && got > most {
						t.Errorf("%d ranks with %d chunks in a V, %d microbatches: it takes %v, want at most %v", ranks, perRank, m, got, most)
					}
				}
			}
		}
	}
	for _, m := range []int{0, -1, MaxActions} {
		if _, err := Forwards(V, 2, 3, m); !errors.Is(err, ErrSpec) {
			t.Errorf("%d microbatches: %v, want ErrSpec", m, err)
		}
	}
}
