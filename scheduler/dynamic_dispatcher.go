package scheduler

import (
	"math"
	"slices"
)

// Dispatcher decides for one rank what to run next. It knows its own row of the priorities,
// what has arrived, and what the rank has begun and ended. It is told these things and
// asked for the next action; it does not wait, allocate, or look at a clock.
//
// # The rule
//
// Of the actions that are ready, the first in the table's order begins, with two
// exceptions.
//
// A forward that leaves its place must not take the room of what it overtakes: the rest
// of the row, with the forward in front, must stay within the bound. Without this a rank
// with several chunks fills up with outputs of its first one, and those of the others,
// which would let something go, come late. (With admission alone, V-Min on 8 ranks with
// 32 microbatches takes 1.22 times as long as its table without jitter, and 1.38 times
// where times vary by 10 %.) Gradients need no room, and may always leave their place.
//
// And a rank stays idle for a moment when what it would begin out of turn is likely to
// be in the way: when the row's next action lacks only an input that is being made, and
// that is due before three quarters of the other's time have passed (see
// [Dispatcher.ExpectInput]). Where memory is tight, ranks go round in step, and a delay of one
// goes through them all: it costs more than the idle moment. (Without this exception,
// V-Min takes 1.12 times as long as its table where times vary by 10 %.) With less
// patience, V-Min gets slower where they vary by 30 %; with more, schedules with memory
// to spare leave more gaps. TestDynamicStudy has the figures.
//
// # Why it ends, and within the bound
//
// An [Admission] must admit each forward, whatever else the rule says. So the bound
// holds, and what a rank holds can always finish in ascending order of microbatches.
// Consider the lowest microbatch that has not finished everywhere, and its next action.
// Its input is there, or on the way. Of earlier microbatches no output is under way any
// more, and later ones come after it on every edge, so that one credit for each edge is
// enough for it. If it is a forward, it is admitted; and as its rank's lowest microbatch
// it may leave its place whatever it overtakes. And a rank stays idle only for an input
// that is being made. So the action begins, at the latest when its rank has begun all
// others.
type Dispatcher struct {
	*ranked
	rank        int
	forwardOnly bool
	costs       Costs

	cursor    int       // position of the row's first action that has not begun
	begun     []bool    // by position
	admission Admission // by place in chunks, as is progress
	progress  []chunkProgress
}

// patience is how much of an action's time may pass until the row's next action gets its
// input, and the rank still stays idle for that.
const patience = 0.75

// chunkProgress is how far one of the rank's chunks is.
type chunkProgress struct {
	begun, ended [numLanes]int
	weights      int32      // weight gradients begun, in B or W
	inputs       [2][]input // by EdgeKind and microbatch; nil: the chunk has none
}

// input is what an action gets from another chunk.
type input struct {
	arrived bool
	due     float64 // when it is expected, +Inf if nobody is at it
}

// Dispatcher returns the dispatcher of a rank, at the start of a step. It is for one goroutine.
func (r *Priorities) Dispatcher(rank int) *Dispatcher {
	rk := &r.ranks[rank]
	c := &Dispatcher{
		ranked: rk, rank: rank, forwardOnly: r.table.ForwardOnly, costs: r.costs,
		begun:     make([]bool, len(rk.row)),
		admission: Admission{Bound: rk.bound, Chunks: make([]Progress, len(rk.chunks))},
		progress:  make([]chunkProgress, len(rk.chunks)),
	}
	for k, s := range rk.chunks {
		for _, kind := range []EdgeKind{ForwardEdge, BackwardEdge} {
			if _, ok := kind.from(int(s), r.table.NumChunks); ok {
				c.progress[k].inputs[kind] = make([]input, r.table.Microbatches)
			}
		}
	}
	c.Reset()
	return c
}

// Expect sets what the rank expects its actions to take, instead of the priorities' costs.
func (c *Dispatcher) Expect(costs Costs) { c.costs = costs }

// Reset goes back to the start of a step.
func (c *Dispatcher) Reset() {
	c.cursor = 0
	clear(c.begun)
	clear(c.admission.Chunks)
	for k := range c.progress {
		p := &c.progress[k]
		*p = chunkProgress{inputs: p.inputs}
		for _, inputs := range p.inputs {
			for m := range inputs {
				inputs[m] = input{due: math.Inf(1)}
			}
		}
	}
}

// ExpectInput says that the input of one of the rank's actions is being made, and when it is
// due, on the clock and in the unit of [Dispatcher.Next]. That is no promise: what is late
// is still waited for. Without ExpectInput a rank runs whatever the bound lets it.
func (c *Dispatcher) ExpectInput(a Action, due float64) {
	if in := c.input(a); in != nil {
		in.due = due
	}
}

// Arrived says that the input of one of the rank's actions is there: for an F the output
// of the chunk before, for an I or B that of the chunk after, also where that chunk is on
// the same rank. An F of the first chunk has no such input, nor has an I or B of the last.
func (c *Dispatcher) Arrived(a Action) {
	if in := c.input(a); in != nil {
		in.arrived = true
	}
}

// input is what an action needs from another chunk; nil: nothing.
func (c *Dispatcher) input(a Action) *input {
	kind, ok := a.Type.edge()
	k := c.place(a.Chunk)
	if !ok || k < 0 || uint(a.Microbatch) >= uint(len(c.progress[k].inputs[kind])) {
		return nil
	}
	return &c.progress[k].inputs[kind][a.Microbatch]
}

// Next returns the action to begin now, if there is one. can says whether an action has
// what the dispatcher doesn't know of, such as a credit for its output; nil means that all
// have. now counts in the unit of the priorities' costs, from any moment; a caller that
// never says Coming may leave it at 0.
//
// What it returns for the same state is the same, so that a rank that finds nothing needs
// to ask again only when it has been told something, or when what can says has changed.
func (c *Dispatcher) Next(now float64, can func(Action) bool) (Action, bool) {
	if c.Done() {
		return Action{}, false
	}
	due := math.Inf(1) // of what the row's next action lacks
	if in := c.input(c.row[c.cursor]); in != nil && !in.arrived {
		due = in.due
	}
	for at := c.firstReady(c.cursor, can); at < len(c.row); at = c.firstReady(at+1, can) {
		a := c.row[at]
		inTheWay := at > c.cursor && due < now+patience*c.costs(c.rank, a)
		if !inTheWay && (a.Type != F || c.admits(at)) {
			return a, true
		}
	}
	return Action{}, false
}

// Done says whether all of the rank's actions have begun.
func (c *Dispatcher) Done() bool { return c.cursor == len(c.row) }

// First returns the row's first action that has not begun, if there is one.
func (c *Dispatcher) First() (Action, bool) {
	if c.Done() {
		return Action{}, false
	}
	return c.row[c.cursor], true
}

// firstReady returns the position of the first ready action from a position on, the
// row's length if there is none.
func (c *Dispatcher) firstReady(from int, can func(Action) bool) int {
	best := len(c.row)
	for k := range c.progress {
		for l, positions := range c.lanes[k] {
			n := c.progress[k].begun[l]
			if n == len(positions) {
				continue
			}
			at := int(positions[n])
			if from <= at && at < best && c.ready(k, c.row[at]) && (can == nil || can(c.row[at])) {
				best = at
			}
		}
	}
	return best
}

// ready says whether the next action of a lane has its inputs, and comes after the weight
// gradients that it must come after.
func (c *Dispatcher) ready(k int, a Action) bool {
	p := &c.progress[k]
	m := int(a.Microbatch)
	switch {
	case a.Type == W:
		return m < p.ended[laneI] && p.weights == a.Microbatch
	case a.Type != F && m >= p.ended[laneF], a.Type == B && p.weights != a.Microbatch:
		return false
	}
	in := c.input(a)
	return in == nil || in.arrived
}

// admits says whether the forward at a position may begin.
func (c *Dispatcher) admits(at int) bool {
	if c.forwardOnly {
		return true
	}
	a := c.row[at]
	if !c.admission.Admits(c.place(a.Chunk)) {
		return false
	}
	held, lowest := 0, math.MaxInt
	for _, p := range c.admission.Chunks {
		held += p.Begun - p.Released
		lowest = min(lowest, p.Released)
	}
	return int(a.Microbatch) == lowest || c.leavesRoom(at, held)
}

// leavesRoom says whether what stands before the position stays within the bound when
// one output more is held.
func (c *Dispatcher) leavesRoom(at, held int) bool {
	for i := c.cursor; i < at; i++ {
		if c.begun[i] {
			continue
		}
		switch c.row[i].Type {
		case F:
			if held++; held >= c.bound {
				return false
			}
		case B, W:
			held--
		}
	}
	return true
}

// Begin takes note that the rank begins an action that Next has returned.
func (c *Dispatcher) Begin(a Action) {
	k, l := c.place(a.Chunk), laneOf(a.Type)
	p := &c.progress[k]
	c.begun[c.lanes[k][l][p.begun[l]]] = true
	p.begun[l]++
	for c.cursor < len(c.row) && c.begun[c.cursor] {
		c.cursor++
	}
	switch a.Type {
	case F:
		c.admission.Chunks[k].Begun++
	case B, W:
		p.weights++
	}
}

// End takes note that an action that has begun has ended.
func (c *Dispatcher) End(a Action) {
	k := c.place(a.Chunk)
	c.progress[k].ended[laneOf(a.Type)]++
	if a.Type == B || a.Type == W {
		c.admission.Chunks[k].Released++
	}
}

// place is where a chunk stands among the rank's, −1 if it is another rank's.
func (rk *ranked) place(chunk int32) int { return slices.Index(rk.chunks, chunk) }
