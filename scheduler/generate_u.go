package scheduler

// uShape plays 1F1B over ranks + 1 chunks, of which rank 0 holds the first and the
// last. It holds one output of the last besides those of 1F1B's first chunk; which of
// its four kinds of work comes when follows from what is there: gradients first, and
// the last chunk's before the first's, since all other ranks wait for them.
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
