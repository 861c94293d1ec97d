package scheduler

import (
	"math"
	"slices"
)

// progress is how far a rank is in an order that comes out as it runs: what it has begun
// and ended on each of its chunks, and which inputs are there. A chunk takes the
// microbatches in ascending order, in each of three lanes.
type progress struct {
	forwardOnly bool
	bound       int     // most outputs held, each from its F to the end of its B or W
	chunks      []int32 // the rank's, ascending
	of          []chunkProgress
}

const (
	laneF = iota
	laneI // B, too
	laneW
	numLanes
)

func laneOf(t Type) int {
	switch t {
	case F:
		return laneF
	case W:
		return laneW
	}
	return laneI
}

type chunkProgress struct {
	begun, ended      [numLanes]int
	weights, released int             // weight gradients, in B or W, begun and ended
	inputs            [2][]inputState // by EdgeKind and microbatch; nil: the chunk has none
}

type inputState uint8

const (
	notBegun inputState = iota
	beingMade
	there
)

func newProgress(t *Table, rank, bound int) *progress {
	p := &progress{forwardOnly: t.ForwardOnly, bound: bound}
	for chunk := range t.NumChunks {
		if t.RankOf(chunk) != rank {
			continue
		}
		var c chunkProgress
		for _, kind := range []EdgeKind{ForwardEdge, BackwardEdge} {
			if _, ok := kind.from(chunk, t.NumChunks); ok {
				c.inputs[kind] = make([]inputState, t.Microbatches)
			}
		}
		p.chunks, p.of = append(p.chunks, int32(chunk)), append(p.of, c)
	}
	return p
}

// place is where a chunk stands among the rank's, −1 if it is another rank's.
func (p *progress) place(chunk int32) int { return slices.Index(p.chunks, chunk) }

// input is what an action needs from another chunk; nil: nothing.
func (p *progress) input(a Action) *inputState {
	kind, ok := a.Type.edge()
	k := p.place(a.Chunk)
	if !ok || k < 0 || uint(a.Microbatch) >= uint(len(p.of[k].inputs[kind])) {
		return nil
	}
	return &p.of[k].inputs[kind][a.Microbatch]
}

// ready says whether the next action of a lane has its inputs, and comes after the weight
// gradients that it must come after.
func (p *progress) ready(a Action) bool {
	c := &p.of[p.place(a.Chunk)]
	m := int(a.Microbatch)
	switch {
	case a.Type == W:
		return m < c.ended[laneI] && c.weights == m
	case a.Type != F && m >= c.ended[laneF], a.Type == B && c.weights != m:
		return false
	}
	in := p.input(a)
	return in == nil || *in == there
}

// admits says whether the next forward of a chunk may begin. A rank that took whatever
// comes could fill up with outputs of its first chunk, and never take the forward of its
// second that would let one of them go. So a forward is admitted only if all that the rank
// holds can still finish within the bound, one microbatch after the other in ascending
// order. Every rank goes by the same order, so that what each can do alone all can do
// together. (It is the banker's algorithm with the order given.)
func (p *progress) admits(chunk int32) bool {
	if p.forwardOnly { // nothing is held
		return true
	}
	begun := func(k int) int {
		if p.chunks[k] == chunk {
			return p.of[k].begun[laneF] + 1
		}
		return p.of[k].begun[laneF]
	}
	free, first, beyond := p.bound, math.MaxInt, 0
	for k, c := range p.of {
		free -= begun(k) - c.released
		first, beyond = min(first, c.released), max(beyond, begun(k))
	}
	for m := first; m < beyond; m++ {
		missing, held := 0, 0
		for k, c := range p.of {
			switch {
			case m >= begun(k):
				missing++
			case m >= c.released:
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

func (p *progress) arrive(a Action) {
	if in := p.input(a); in != nil {
		*in = there
	}
}

func (p *progress) begin(a Action) {
	c := &p.of[p.place(a.Chunk)]
	c.begun[laneOf(a.Type)]++
	if a.Type == B || a.Type == W {
		c.weights++
	}
}

// End takes note that an action that has begun has ended.
func (p *progress) End(a Action) {
	c := &p.of[p.place(a.Chunk)]
	c.ended[laneOf(a.Type)]++
	if a.Type == B || a.Type == W {
		c.released++
	}
}
