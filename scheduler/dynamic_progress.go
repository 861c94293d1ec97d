package scheduler

// Admission decides whether a rank may begin a forward when it holds at most Bound
// outputs, each from its F to its B or W. A rank that took whatever comes could fill
// up with outputs of its first chunk, and never take the forward of its second that
// would let one of them go. So a forward is admitted only if all that the rank holds
// can still finish within the bound, one microbatch after the other in ascending
// order. Every rank goes by the same order, so that what each can do alone all can do
// together. (It is the banker's algorithm with the order given.)
type Admission struct {
	Bound  int
	Chunks []Progress // the rank's chunks, ascending
}

// Progress is how far a chunk is: its microbatches go through it in ascending order.
type Progress struct {
	Begun    int // forwards
	Released int // backwards, or weight gradients
}

// Admits says whether the next forward of the rank's chunk at the given place may begin.
func (a Admission) Admits(chunk int) bool {
	begun := func(s, microbatch int) bool {
		n := a.Chunks[s].Begun
		if s == chunk {
			n++
		}
		return microbatch < n
	}
	free := a.Bound - 1
	first, beyond := a.Chunks[chunk].Begun, a.Chunks[chunk].Begun+1
	for _, p := range a.Chunks {
		free -= p.Begun - p.Released
		first, beyond = min(first, p.Released), max(beyond, p.Begun)
	}
	for m := first; m < beyond; m++ {
		missing, held := 0, 0
		for s, p := range a.Chunks {
			switch {
			case !begun(s, m):
				missing++
			case m >= p.Released:
				held++
			}
		}
		if missing > free {
			return false
		}
		free += held
	}
	return free >= 0
}
