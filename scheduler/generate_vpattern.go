package scheduler

import (
	"fmt"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/words"
)

// Schedules of controllable memory (arXiv 2405.15362). The way of one microbatch down and up the V,
// the building block, repeats every six units, which is the time of F, I and W of two chunks. Its
// speed from rank to rank determines how long each output is held. That time divided by six is the
// number of outputs held at once. The orders are then simulated without the block's times, which
// closes gaps at both ends.

// slopes are the units of time between neighboring ranks: for the forwards down and up the V, and
// for the input gradients down and up.
type slopes struct{ forward0, forward1, input1, input0 int }

var (
	// Everything moves at once: the outputs of both chunks together wait 4·ranks units between F
	// and I, and a rank holds a third of 1F1B's outputs.
	vMinSlopes = []slopes{{1, 1, 1, 1}}
	// 6·ranks units, half of 1F1B's.
	vHalfSlopes = []slopes{{2, 1, 2, 1}, {1, 2, 1, 2}}
)

// period is the time of F, I and W of two chunks, in units.
const period = 6

// pattern returns the order of every rank with the slopes that take the least time within the
// bound; nil if none stay within it.
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

// block holds the start times of a microbatch's actions. On rank r, F of the first chunk starts at
// forward0·r, F of the second at at[1] − forward1·r, I of the second at at[2] + input1·r, I of the
// first at at[3] − input0·r.
type block struct {
	slopes
	at [4]int
}

// starts returns a rank's four times, in the order in which the microbatch passes.
func (b block) starts(rank int) [4]int {
	return [4]int{b.forward0 * rank, b.at[1] - b.forward1*rank, b.at[2] + b.input1*rank, b.at[3] - b.input0*rank}
}

// block finds the earliest times at which each input has arrived, no rank runs two actions at once,
// and no rank exceeds the bound.
func (c slopes) block(ranks, bound int) (block, bool) {
	last := ranks - 1
	for late := range 3 * period { // delay in total
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

// peak returns the largest number of outputs that a rank holds. It follows from the rank's order.
// An output is held for less than 6·ranks units, so that many microbatches show the peak.
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

// repeat lays out the block for all microbatches. The weight gradients take the earliest free
// times.
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

// vHalf is the pattern of its paper, closed up within the bound. (Closing up V-Min's pattern would
// hold up to half as much again and gain almost nothing.)
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
	return nil, fmt.Errorf("%w: schedule %s: no pattern for %s stays within %s", ErrSpec, s.Schedule, words.Plural(s.Ranks, "rank"),
		words.Plural(bound, "output"))
}
