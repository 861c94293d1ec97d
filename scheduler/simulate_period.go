package scheduler

import (
	"fmt"
	"math"
	"slices"
)

// SteadyStateStep returns the time from the end of one step to the end of the next if no rank waits
// for the optimizer between steps ("Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section
// 4). A rank starts a step when it has ended the previous one. The update takes no time, and ranks
// share no weights.
//
// Everything that touches the gradients has to wait until every rank has ended the previous step.
// This happens in any case: the last chunk's first forward, and all that follows from it, needs a
// forward of the same step on every rank.
//
// The function simulates step after step until the ranks' leads equal those after an earlier step,
// up to a fixed number of steps; if they never do, it returns the time of the last step. It returns
// ErrPeriod for a table without backwards or with more than [MaxPeriodActions] actions, and for a
// machine whose ranks share cores.
func (m Machine) SteadyStateStep(t *Table) (float64, error) {
	switch n := t.numActions(); {
	case t.ForwardOnly:
		return 0, fmt.Errorf("%w: the table has no backwards", ErrPeriod)
	case n > MaxPeriodActions:
		return 0, fmt.Errorf("%w: the table has %d actions, the limit is %d", ErrPeriod, n, MaxPeriodActions)
	case m.Share != nil:
		return 0, fmt.Errorf("%w: the machine's ranks share cores", ErrPeriod)
	}
	ix, err := newIndex(t)
	if err != nil {
		return 0, err
	}
	p := newPlayer(t, ix)
	var ends []float64    // end of each step so far
	var leads [][]float64 // by step and rank: how long before the step's end the rank was free
	began := 0.0          // start of the current step
	for range periodSteps {
		if err := p.play(m); err != nil {
			return 0, err
		}
		makespan, first := p.timeline.Makespan, math.Inf(1)
		lead := make([]float64, t.NumRanks())
		for r, end := range p.timeline.End {
			free := end[len(end)-1]
			lead[r], first = makespan-free, min(first, free)
		}
		end := began + makespan
		for i, before := range leads {
			if same(before, lead, makespan) {
				return (end - ends[i]) / float64(len(ends)-i), nil
			}
		}
		ends, leads = append(ends, end), append(leads, lead)
		began += first
		for r := range p.release {
			p.release[r] = makespan - lead[r] - first
		}
	}
	return ends[periodSteps-1] - ends[periodSteps-2], nil
}

// same reports whether leads are equal up to the rounding of float sums.
func same(a, b []float64, makespan float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) <= 1e-9*makespan })
}
