package scheduler

import "math"

// Dispatcher decides for one rank what to run next in one step. It knows its own row of
// the priorities, what has arrived, and what the rank has begun and ended. It is told these
// things and asked for the next action; it does not wait, allocate, or look at a clock.
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
// And nothing leaves its place while what the row's next action lacks is being made (see
// [Dispatcher.ExpectInput]). Where memory is tight, ranks go round in step, and a delay of
// one goes through them all: it costs more than the idle moment. (Without this exception,
// V-Min takes 1.12 times as long as its table where times vary by 10 %.)
//
// # Why it ends, and within the bound
//
// Admission ([progress]) goes before all else that the rule says. So the bound holds, and
// what a rank holds can always finish in ascending order of microbatches. Consider the
// lowest microbatch that has not finished everywhere, and its next action. Its inputs are
// there, or on the way. Of earlier microbatches no output is under way any more, and later
// ones come after it on every edge, so that one credit for each edge is enough for it. If
// it is a forward, it is admitted; and as its rank's lowest microbatch it may leave its
// place whatever it overtakes. And a rank stays idle only for an input that is being made.
// So the action begins, at the latest when its rank has begun all others.
type Dispatcher struct {
	*ranked
	*progress
	cursor int // position of the row's first action that has not begun
}

// Dispatcher returns a rank's dispatcher for a step. It is for one goroutine.
func (r *Priorities) Dispatcher(rank int) *Dispatcher {
	return &Dispatcher{ranked: &r.ranks[rank], progress: newProgress(r.table, rank, r.bound)}
}

// ExpectInput says that the input of one of the rank's actions is being made. Without it a
// rank runs whatever the bound lets it. Of several inputs it is for the neighbour's alone:
// by the time that this is begun, the others have been made.
func (d *Dispatcher) ExpectInput(a Action) {
	if in := d.input(a); in != nil && *in == notBegun {
		*in = beingMade
	}
}

// Arrived says that all inputs of one of the rank's actions are there, once for all of them
// (see [Edges.Ins]): for an F the output of the chunk before, for an I or B that of the chunk
// after, also where that chunk is on the same rank, and what comes by skip edges. An F of the
// first chunk has no such input, nor has an I or B of the last.
func (d *Dispatcher) Arrived(a Action) { d.arrive(a) }

// Awaits reports whether the rank's actions of a type on a chunk have such an input.
func (d *Dispatcher) Awaits(a Action) bool { return d.input(a) != nil }

// Next returns the action to begin now, if there is one. can says whether an action has
// what the dispatcher doesn't know of, such as a credit for its output.
//
// What it returns for the same state is the same, so that a rank that finds nothing needs
// to ask again only when it has been told something, or when what can says has changed.
func (d *Dispatcher) Next(can func(Action) bool) (Action, bool) {
	first, ok := d.First()
	if !ok {
		return Action{}, false
	}
	in := d.input(first)
	waits := in != nil && *in == beingMade
	for at := d.firstReady(d.cursor, can); at < len(d.row) && (at == d.cursor || !waits); at = d.firstReady(at+1, can) {
		if a := d.row[at]; a.Type != F || d.admits(a.Chunk) && d.leavesRoom(at) {
			return a, true
		}
	}
	return Action{}, false
}

// First returns the row's first action that has not begun, if there is one.
func (d *Dispatcher) First() (Action, bool) {
	if d.cursor == len(d.row) {
		return Action{}, false
	}
	return d.row[d.cursor], true
}

// firstReady returns the position of the first ready action from a position on, the
// row's length if there is none.
func (d *Dispatcher) firstReady(from int, can func(Action) bool) int {
	best := len(d.row)
	for k := range d.of {
		for l, positions := range d.lanes[k] {
			if n := d.of[k].begun[l]; n < len(positions) {
				if at := positions[n]; from <= at && at < best && d.ready(d.row[at]) && can(d.row[at]) {
					best = at
				}
			}
		}
	}
	return best
}

// leavesRoom says whether what stands before the forward at a position stays within the
// bound when one output more is held. A rank's lowest microbatch may always go.
func (d *Dispatcher) leavesRoom(at int) bool {
	held, lowest := 0, math.MaxInt
	for _, c := range d.of {
		held += c.begun[laneF] - c.released
		lowest = min(lowest, c.released)
	}
	if d.forwardOnly || int(d.row[at].Microbatch) == lowest {
		return true
	}
	for _, a := range d.row[d.cursor:at] {
		if d.hasBegun(a) {
			continue
		}
		switch a.Type {
		case F:
			if held++; held >= d.bound {
				return false
			}
		case B, W:
			held--
		}
	}
	return true
}

func (d *Dispatcher) hasBegun(a Action) bool {
	c := &d.of[d.place(a.Chunk)]
	if a.Type == W {
		return int(a.Microbatch) < c.weights
	}
	return int(a.Microbatch) < c.begun[laneOf(a.Type)]
}

// Begin takes note that the rank begins an action that Next has returned.
func (d *Dispatcher) Begin(a Action) {
	d.begin(a)
	for d.cursor < len(d.row) && d.hasBegun(d.row[d.cursor]) {
		d.cursor++
	}
}
