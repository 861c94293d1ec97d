package scheduler

import "slices"

// greedy makes a table by playing it: whenever a rank is free, it runs the best
// action that is ready, under a bound on what it holds. Microbatches go through
// each chunk in ascending order, forwards, backwards and weight gradients alike.
type greedy struct {
	placement    Placement
	numRanks     int
	numChunks    int
	microbatches int
	split        bool  // I and W apart
	bound        []int // by rank: most outputs held, from F to the B or W
	costs        Costs
	link         Link // nil: no time
	// urgency orders what is ready: the least goes first, of equals the deeper chunk.
	urgency func(rank int, a Action) int
}

// play returns the orders of all ranks.
func (g *greedy) play() [][]Action {
	p := &greedyPlay{greedy: g, ranks: make([]greedyRank, g.numRanks), chunks: make([]greedyChunk, g.numChunks)}
	for s := range p.chunks {
		r := g.placement.Rank(s, g.numRanks)
		p.ranks[r].chunks = append(p.ranks[r].chunks, s)
		for kind := range p.chunks[s].arrived {
			p.chunks[s].arrived[kind] = make([]float64, 0, g.microbatches)
		}
	}
	for range g.microbatches { // the tokens are there
		p.chunks[0].arrived[ForwardEdge] = append(p.chunks[0].arrived[ForwardEdge], 0)
	}
	rows := make([][]Action, g.numRanks)
	for r := range rows {
		p.push(event{rank: r, kind: rankDecides})
	}
	for e, ok := p.pop(); ok; e, ok = p.pop() {
		r := &p.ranks[e.rank]
		switch {
		case e.kind == actionEnded:
			p.deliver(e.time, e.action)
			r.busy = false
			p.push(event{time: e.time, rank: e.rank, kind: rankDecides})
		case !r.busy:
			if a, ok := p.choose(e.rank, e.time); ok {
				rows[e.rank] = append(rows[e.rank], a)
				p.begin(e.rank, a)
				r.busy = true
				p.push(event{time: e.time + g.costs(e.rank, a), rank: e.rank, action: a})
			}
		}
	}
	return rows
}

type greedyPlay struct {
	*greedy
	events
	ranks  []greedyRank
	chunks []greedyChunk // by chunk
}

type greedyRank struct {
	chunks []int // ascending
	busy   bool
}

// greedyChunk counts what a chunk has begun and ended of each type (I stands for B, too),
// and holds its inputs' arrival times.
type greedyChunk struct {
	begun, ended [W + 1]int
	arrived      [2][]float64 // by EdgeKind, of microbatch 0, 1, …
}

// backward is the type that makes a gradient.
func (g *greedy) backward() Type {
	if g.split {
		return I
	}
	return B
}

// choose returns the best action that a rank can begin.
func (p *greedyPlay) choose(rank int, now float64) (best Action, ok bool) {
	least := 0
	chunks := p.ranks[rank].chunks
	for i := len(chunks) - 1; i >= 0; i-- {
		s := chunks[i]
		for t := F; t <= W; t++ {
			a := Action{Chunk: int32(s), Type: t, Microbatch: int32(p.chunks[s].begun[t])}
			if !p.ready(rank, a, now) {
				continue
			}
			if t == I {
				a.Type = p.backward()
			}
			if u := p.urgency(rank, a); !ok || u < least {
				best, least, ok = a, u, true
			}
		}
	}
	return best, ok
}

// ready says whether the next action of a type can begin on a chunk.
func (p *greedyPlay) ready(rank int, a Action, now float64) bool {
	c := &p.chunks[a.Chunk]
	m := int(a.Microbatch)
	if m == p.microbatches {
		return false
	}
	there := func(kind EdgeKind) bool { return m < len(c.arrived[kind]) && c.arrived[kind][m] <= now }
	switch a.Type {
	case F:
		return there(ForwardEdge) && p.admits(rank, a)
	case I:
		return m < c.ended[F] && (int(a.Chunk) == p.numChunks-1 || there(BackwardEdge))
	}
	return p.split && m < c.ended[I]
}

// admits says whether a rank that begins a forward can still let every microbatch
// that it holds finish, in ascending order, within its bound: see Admission.
func (p *greedyPlay) admits(rank int, a Action) bool {
	adm := Admission{Bound: p.bound[rank]}
	last := I
	if p.split {
		last = W
	}
	for _, s := range p.ranks[rank].chunks {
		c := &p.chunks[s]
		adm.Chunks = append(adm.Chunks, Progress{Begun: c.begun[F], Released: c.ended[last]})
	}
	return adm.Admits(slices.Index(p.ranks[rank].chunks, int(a.Chunk)))
}

func (p *greedyPlay) begin(rank int, a Action) {
	t := a.Type
	if t == B {
		t = I
	}
	p.chunks[a.Chunk].begun[t]++
}

// deliver takes note that an action has ended.
func (p *greedyPlay) deliver(now float64, a Action) {
	t := a.Type
	if t == B {
		t = I
	}
	p.chunks[a.Chunk].ended[t]++
	kind, ok := a.Type.edge()
	if !ok {
		return
	}
	to, ok := kind.to(int(a.Chunk), p.numChunks)
	if !ok {
		return
	}
	from, rank := p.placement.Rank(int(a.Chunk), p.numRanks), p.placement.Rank(to, p.numRanks)
	at := now
	if p.link != nil && from != rank {
		at += p.link(from, rank)
	}
	p.chunks[to].arrived[kind] = append(p.chunks[to].arrived[kind], at)
	p.push(event{time: at, rank: rank, kind: rankDecides})
}
