package scheduler

// uShape simulates 1F1B over ranks+1 chunks. Rank 0 holds the first and the last of them, and one
// output of the last chunk in addition to 1F1B's outputs of its first. The order of its four kinds
// of work follows from what is ready: gradients first, and the last chunk's before the first's,
// since all other ranks wait for them.
func (s Spec) uShape() ([][]Action, error) {
	g := greedy{
		placement: U, numRanks: s.Ranks, numChunks: s.Ranks + 1, microbatches: s.Microbatches,
		costs: UnitCosts, bound: make([]int, s.Ranks),
		urgency: func(_ int, a Action) int {
			if a.Type == B {
				return 0 // of two, the deeper chunk's
			}
			return 1
		},
	}
	for rank := range g.bound {
		g.bound[rank] = s.Ranks + 1 - rank
	}
	g.bound[0]++
	return g.play()
}
