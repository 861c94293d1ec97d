package scheduler

// greedy makes a table by simulation. A free rank runs the best action that is ready, within a
// bound on the outputs that it holds. On each chunk the forwards, backwards and weight gradients
// each run in ascending microbatch order.
type greedy struct {
	placement    Placement
	numRanks     int
	numChunks    int
	microbatches int
	forwardOnly  bool
	split        bool  // I and W apart
	bound        []int // by rank: most outputs held, from F to the B or W
	costs        Costs
	link         Link // nil: no time
	// urgency ranks what is ready: the lowest value goes first, of equal ones the later chunk.
	urgency func(rank int, a Action) int
}

// play returns the orders of all ranks.
func (g *greedy) play() ([][]Action, error) {
	t := &Table{Placement: g.placement, NumChunks: g.numChunks, Microbatches: g.microbatches, ForwardOnly: g.forwardOnly,
		Ranks: make([][]Action, g.numRanks)}
	p := &greedyPolicy{greedy: g, ranks: make([]*progress, g.numRanks)}
	for rank := range p.ranks {
		p.ranks[rank] = newProgress(t, rank, g.bound[rank])
	}
	edges, err := t.Edges()
	if err != nil {
		return nil, err
	}
	l := newLoop(Machine{Costs: g.costs, Link: g.link}, t, edges, p)
	err = l.run()
	return l.table.Ranks, err
}

// greedyPolicy takes the best action that a rank can start.
type greedyPolicy struct {
	*greedy
	ranks  []*progress
	chosen [1]Action
}

func (g *greedyPolicy) next(rank int, _ func(Action) bool) []Action {
	types := [...]Type{F, I, W}
	lanes := types[:]
	if !g.split {
		types[laneI] = B
		lanes = types[:laneW]
	}
	if g.forwardOnly {
		lanes = types[:laneI]
	}
	p := g.ranks[rank]
	found, least := false, 0
	for k := len(p.chunks) - 1; k >= 0; k-- {
		for l, t := range lanes {
			m := p.of[k].begun[l]
			a := Action{Chunk: p.chunks[k], Type: t, Microbatch: int32(m)}
			if m == g.microbatches || !p.ready(a) || t == F && !p.admits(a.Chunk) {
				continue
			}
			if u := g.urgency(rank, a); !found || u < least {
				g.chosen[0], least, found = a, u, true
			}
		}
	}
	if !found {
		return nil
	}
	return g.chosen[:]
}

func (g *greedyPolicy) begin(rank int, a Action)   { g.ranks[rank].begin(a) }
func (g *greedyPolicy) end(rank int, a Action)     { g.ranks[rank].End(a) }
func (g *greedyPolicy) arrived(rank int, a Action) { g.ranks[rank].arrive(a) }
