package scheduler

import (
	"math"
	"slices"
)

// progress records how far a rank has come in an order that is made during a simulation: what it
// has started and ended on each of its chunks, and which inputs have arrived. A chunk takes the
// microbatches in ascending order, in each of three lanes.
type progress struct {
	forwardOnly bool
	bound       int     // largest number of outputs held, each from its F to the end of its B or W
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
	weights, released int             // weight gradients, in B or W, started and ended
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

// place returns the index of a chunk among the rank's chunks, −1 if another rank holds it.
func (p *progress) place(chunk int32) int { return slices.Index(p.chunks, chunk) }

// input returns the input that an action needs from another chunk; nil: none.
func (p *progress) input(a Action) *inputState {
	kind, ok := a.Type.edge()
	k := p.place(a.Chunk)
	if !ok || k < 0 || uint(a.Microbatch) >= uint(len(p.of[k].inputs[kind])) {
		return nil
	}
	return &p.of[k].inputs[kind][a.Microbatch]
}

// ready reports whether the next action of a lane has its inputs and follows the weight gradients
// that must come before it.
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

// admits reports whether the next forward of a chunk may start. A rank that took any ready forward
// could fill up with outputs of its first chunk, and never run the forward of its second that would
// release one of them. So a forward is admitted only if everything that the rank holds can still
// finish within the bound, one microbatch after the other in ascending order. Every rank uses the
// same order. So if each rank can finish alone, all can finish together. (This is the banker's
// algorithm with a given order.)
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

// End records that a started action has ended.
func (p *progress) End(a Action) {
	c := &p.of[p.place(a.Chunk)]
	c.ended[laneOf(a.Type)]++
	if a.Type == B || a.Type == W {
		c.released++
	}
}
