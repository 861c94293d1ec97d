package scheduler

import (
	"fmt"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/words"
)

// Schedules of controllable memory (arXiv 2405.15362): one microbatch's way down and
// up the V, the building block, is repeated every six units, which is what the F, I
// and W of two chunks take. How fast it goes from rank to rank decides how long each
// output is held, and that, over six, how many are held at a time. The orders are then
// played without the times, so that they close up at both ends.

// slopes are the units between neighbouring ranks: of the forwards down and up the V,
// and of the input gradients down and up.
type slopes struct{ forward0, forward1, input1, input0 int }

var (
	// Everything goes on at once: an output of either chunk waits 4·ranks units
	// between its F and its I, in sum, and a third of 1F1B's outputs are held.
	vMinSlopes = []slopes{{1, 1, 1, 1}}
	// 6·ranks units, half of 1F1B's.
	vHalfSlopes = []slopes{{2, 1, 2, 1}, {1, 2, 1, 2}}
)

// period is what two chunks' F, I and W take.
const period = 6

// pattern returns the order of every rank, by the slopes that take the least time
// without holding more than the bound; nil: there are none.
func (s Spec) pattern(choices []slopes, bound int) [][]Action {
	var best [][]Action
	least := math.Inf(1)
	for _, c := range choices {
		b, ok := c.block(s.Ranks, bound)
		if !ok {
			continue
		}
		t := &Table{Placement: V, NumChunks: 2 * s.Ranks, Microbatches: s.Microbatches, Ranks: b.repeat(s.Ranks, s.Microbatches)}
		if tl, err := Simulate(t, UnitCosts); err == nil && tl.Makespan < least {
			best, least = t.Ranks, tl.Makespan
		}
	}
	return best
}

// block says when a microbatch's actions begin: on rank r F of the first chunk at
// forward0·r, F of the second at at[1] − forward1·r, I of the second at at[2] +
// input1·r, I of the first at at[3] − input0·r.
type block struct {
	slopes
	at [4]int
}

// starts are a rank's four times, in the order of the microbatch's way.
func (b block) starts(rank int) [4]int {
	return [4]int{b.forward0 * rank, b.at[1] - b.forward1*rank, b.at[2] + b.input1*rank, b.at[3] - b.input0*rank}
}

// block finds the earliest times at which each input is there, no rank is to do two
// things at once, and none holds more than the bound.
func (c slopes) block(ranks, bound int) (block, bool) {
	last := ranks - 1
	for late := range 3 * period { // in sum
		for i := range min(late+1, period) {
			for j := range min(late-i+1, period) {
				b := block{slopes: c}
				b.at[1] = c.forward0*last + 1 + c.forward1*last + i
				b.at[2] = b.at[1] + 1 + j
				b.at[3] = b.at[2] + c.input1*last + 1 + c.input0*last + late - i - j
				if !b.collides(ranks) && b.peak(ranks) <= bound {
					return b, true
				}
			}
		}
	}
	return block{}, false
}

// peak is the most outputs that a rank holds. A rank's holdings follow from its order;
// an output is held for less than 6·ranks units, so that many microbatches show all.
func (b block) peak(ranks int) int {
	t := &Table{Ranks: b.repeat(ranks, ranks+period)}
	return slices.Max(peakInFlight(t))
}

func (b block) collides(ranks int) bool {
	for r := range ranks {
		var taken [period]bool
		for _, t := range b.starts(r) {
			if taken[t%period] {
				return true
			}
			taken[t%period] = true
		}
	}
	return false
}

// repeat lays the block out for all microbatches. The weight gradients go to the times
// that are free, as soon as they can.
func (b block) repeat(ranks, microbatches int) [][]Action {
	rows := make([][]Action, ranks)
	for r := range rows {
		starts := b.starts(r)
		var taken [period]bool
		for _, t := range starts {
			taken[t%period] = true
		}
		weight := func(after int) int {
			for t := after + 1; ; t++ {
				if !taken[t%period] {
					taken[t%period] = true
					return t
				}
			}
		}
		w1 := weight(starts[2])
		w0 := weight(starts[3])
		type timed struct {
			time   int
			action Action
		}
		var all []timed
		for m := range microbatches {
			add := func(time, chunk int, t Type) {
				all = append(all, timed{time + period*m, Action{Chunk: int32(chunk), Type: t, Microbatch: int32(m)}})
			}
			down, up := r, 2*ranks-1-r
			add(starts[0], down, F)
			add(starts[1], up, F)
			add(starts[2], up, I)
			add(w1, up, W)
			add(starts[3], down, I)
			add(w0, down, W)
		}
		slices.SortFunc(all, func(a, b timed) int { return a.time - b.time })
		for _, a := range all {
			rows[r] = append(rows[r], a.action)
		}
	}
	return rows
}

// vMin is the pattern within the bound that its paper gives.
func (s Spec) vMin() ([][]Action, error) { return s.bounded(vMinSlopes, 2*((s.Ranks+2)/3)+2) }

// vHalf is its pattern, closed up within the bound. (Closing V-Min's up would hold up to
// half as much again for next to nothing.)
func (s Spec) vHalf() ([][]Action, error) {
	bound := s.Ranks + 2
	rows, err := s.bounded(vHalfSlopes, bound)
	if err != nil {
		return nil, err
	}
	return s.closedUp(rows, bound)
}

func (s Spec) bounded(choices []slopes, bound int) ([][]Action, error) {
	if rows := s.pattern(choices, bound); rows != nil {
		return rows, nil
	}
	return nil, fmt.Errorf("%w: schedule %s: no pattern for %s holds at most %s", ErrSpec, s.Schedule, words.Plural(s.Ranks, "rank"),
		words.Plural(bound, "output"))
}
