package scheduler

import "math"

// closedUp lets ranks run ready actions before the pattern's order, within the bound, and keeps the
// result if it ends earlier. This helps at both ends of a step, where the pattern waits for inputs.
// On every chunk the microbatches stay in ascending order.
func (s Spec) closedUp(rows [][]Action, bound int) ([][]Action, error) {
	t := &Table{Placement: V, NumChunks: 2 * s.Ranks, Microbatches: s.Microbatches, Ranks: rows}
	edges, err := t.Edges()
	if err != nil {
		return nil, err
	}
	fixed, err := Simulate(t, UnitCosts)
	if err != nil {
		return nil, err
	}
	p := make(closeUpPolicy, s.Ranks)
	for rank, row := range rows {
		p[rank] = newCloseUp(t, rank, row, bound)
	}
	l := newLoop(Machine{Costs: UnitCosts}, t, edges, p)
	if err := l.run(); err != nil {
		return nil, err
	}
	if l.timeline.Summarise(); l.timeline.Makespan >= fixed.Makespan {
		return rows, nil
	}
	return l.table.Ranks, nil
}

// closeUp chooses what one rank runs next: the first action of its row that is ready.
//
// A forward that moves ahead must not take the room of the actions that it overtakes: the rest of
// the row, with the forward in front, must stay within the bound. Otherwise a rank fills up with
// outputs of its first chunk, and the forwards of its second chunk, which would release some, come
// late.
//
// The play always ends, and within the bound: admission ([progress]) is checked before this rule.
// So a rank can always finish what it holds in ascending order of microbatches, and its lowest
// microbatch may always move ahead.
type closeUp struct {
	*progress
	row    []Action
	lanes  [][numLanes][]int // by the chunk's place on the rank: positions in the row
	cursor int               // position of the row's first action that has not begun
	chosen [1]Action
}

func newCloseUp(t *Table, rank int, row []Action, bound int) *closeUp {
	c := &closeUp{progress: newProgress(t, rank, bound), row: row}
	c.lanes = make([][numLanes][]int, len(c.chunks))
	for i, a := range row {
		lane := &c.lanes[c.place(a.Chunk)][laneOf(a.Type)]
		*lane = append(*lane, i)
	}
	return c
}

// next returns the position of the action to start now, or the row's length if there is none.
func (c *closeUp) next() int {
	at := c.firstReady(c.cursor)
	for at < len(c.row) && c.row[at].Type == F && (!c.admits(c.row[at].Chunk) || !c.leavesRoom(at)) {
		at = c.firstReady(at + 1)
	}
	return at
}

// firstReady returns the position of the first ready action at or after a position, or the row's
// length if there is none.
func (c *closeUp) firstReady(from int) int {
	best := len(c.row)
	for k := range c.of {
		for l, positions := range c.lanes[k] {
			if n := c.of[k].begun[l]; n < len(positions) {
				if at := positions[n]; from <= at && at < best && c.ready(c.row[at]) {
					best = at
				}
			}
		}
	}
	return best
}

// leavesRoom reports whether the actions before the forward at a position stay within the bound
// when one more output is held. A rank's lowest microbatch may always move ahead.
func (c *closeUp) leavesRoom(at int) bool {
	held, lowest := 0, math.MaxInt
	for _, of := range c.of {
		held += of.begun[laneF] - of.released
		lowest = min(lowest, of.released)
	}
	if int(c.row[at].Microbatch) == lowest {
		return true
	}
	for _, a := range c.row[c.cursor:at] {
		if c.hasBegun(a) {
			continue
		}
		switch a.Type {
		case F:
			if held++; held >= c.bound {
				return false
			}
		case W:
			held--
		}
	}
	return true
}

func (c *closeUp) hasBegun(a Action) bool {
	return int(a.Microbatch) < c.of[c.place(a.Chunk)].begun[laneOf(a.Type)]
}

// closeUpPolicy holds every rank's closeUp.
type closeUpPolicy []*closeUp

func (p closeUpPolicy) next(rank int, _ func(Action) bool) []Action {
	c := p[rank]
	at := c.next()
	if at == len(c.row) {
		return nil
	}
	c.chosen[0] = c.row[at]
	return c.chosen[:]
}

func (p closeUpPolicy) begin(rank int, a Action) {
	c := p[rank]
	c.begin(a)
	for c.cursor < len(c.row) && c.hasBegun(c.row[c.cursor]) {
		c.cursor++
	}
}

func (p closeUpPolicy) end(rank int, a Action)     { p[rank].End(a) }
func (p closeUpPolicy) arrived(rank int, a Action) { p[rank].arrive(a) }
