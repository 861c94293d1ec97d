package scheduler

import (
	"fmt"
	"math"
	"slices"
)

// SteadyStateStep is the time from a step's end to the next one's where steps follow each other
// without a wait for the optimizer ("Zero Bubble Pipeline Parallelism", arXiv
// 2401.10241, section 4): a rank begins a step when it has ended the one before. The
// update takes no time, and no weight is shared between ranks.
//
// What touches the gradients has to wait until every rank has ended the step before,
// and does so anyway: the last chunk's first forward, and all that follows from it,
// needs a forward of the same step on every rank.
//
// It plays step after step until the ranks' leads come back to what they were after an
// earlier step, up to a number of steps; leads that never do give the last step's time.
// It fails with ErrPeriod for a table without backwards, or of more than
// [MaxPeriodActions] actions, and for a machine whose ranks share cores.
func (m Machine) SteadyStateStep(t *Table) (float64, error) {
	switch n := t.numActions(); {
	case t.ForwardOnly:
		return 0, fmt.Errorf("%w: the table has forwards only", ErrPeriod)
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
	var ends []float64    // of the steps so far
	var leads [][]float64 // by step and rank: how long before its end the rank was free
	began := 0.0          // when the play's clock began
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

// same reports whether leads differ by no more than sums of floats do.
func same(a, b []float64, makespan float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) <= 1e-9*makespan })
}
