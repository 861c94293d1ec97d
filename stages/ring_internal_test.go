package stages

import (
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

// ranked is a group of which only the size and the rank matter.
type ranked struct {
	tensorops.Solo
	rank, size int
}

func (r ranked) Rank() int { return r.rank }
func (r ranked) Size() int { return r.size }

// TestPairs: the pairs of all ranks and turns cover what a window lets queries see, each once. A
// query block attends to itself first, and a pair is there only if a query sees a key of it.
func TestPairs(t *testing.T) {
	const each = 5
	for _, size := range []int{1, 2, 3, 4} {
		for window := range 2*size*each + 2 {
			for rank := range size {
				group := ContextParallel{Group: ranked{rank: rank, size: size}}
				computed, attended := make(map[[2]int]bool), make(map[int]bool)
				for turn := range size {
					used := make(map[int]bool)
					for _, p := range pairs(group, (rank-turn+size)%size, window, each, false) {
						at := p.blocks
						if computed[at] || p.onto != attended[at[0]] || p.sameKeys != used[p.keys] || !p.onto && window > 0 && at[0] != at[1] {
							t.Fatalf("%d ranks, window %d, rank %d: %+v is computed %v", size, window, rank, p, computed[at])
						}
						computed[at], attended[at[0]], used[p.keys] = true, true, true
					}
				}
				for _, queries := range positionBlocks(rank, size) {
					for keys := range 2 * size {
						nearest := queries*each - (keys*each + each - 1) // of the first query and the last key
						want := keys == queries || keys < queries && (window == 0 || nearest < window)
						if computed[[2]int{queries, keys}] != want {
							t.Errorf("%d ranks, window %d: the pair of blocks %d and %d: %v, want %v", size, window, queries, keys, !want, want)
						}
					}
				}
			}
		}
	}
}
