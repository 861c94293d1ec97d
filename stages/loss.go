package stages

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Report is what the last stage says about one microbatch.
type Report struct {
	Sum     float64            // of the targets' losses
	Targets float64            // their number
	Metrics map[string]float64 // further sums, reduced as the loss is
}

// Accumulator adds the reports of a step: the sums of all microbatches, divided by the
// number of targets in the whole step, so that a target counts the same wherever it
// stands. The order in which reports come doesn't matter: they are added by microbatch.
type Accumulator struct {
	reports map[int]Report
}

// NewAccumulator makes an empty one.
func NewAccumulator() *Accumulator { return &Accumulator{reports: make(map[int]Report)} }

// Add takes the report of a microbatch.
func (a *Accumulator) Add(microbatch int, r Report) error {
	if _, twice := a.reports[microbatch]; twice {
		return fmt.Errorf("%w: microbatch %d reports its loss twice", ErrMicrobatch, microbatch)
	}
	a.reports[microbatch] = r
	return nil
}

// Targets is the number of targets in the reports.
func (a *Accumulator) Targets() float64 {
	var n float64
	for _, r := range a.reports {
		n += r.Targets // whole numbers: exact in any order
	}
	return n
}

// Loss reduces the losses, in the order of the microbatches.
func (a *Accumulator) Loss() float64 {
	return a.reduce(func(r Report) float64 { return r.Sum })
}

// Metric reduces a metric as the loss is.
func (a *Accumulator) Metric(name string) float64 {
	return a.reduce(func(r Report) float64 { return r.Metrics[name] })
}

// LossScale is the factor of summed losses, and of their gradient, for a number of targets.
func LossScale(targets float64) float64 { return 1 / math.Max(targets, 1) }

// Reset empties the accumulator for the next step.
func (a *Accumulator) Reset() { clear(a.reports) }

func (a *Accumulator) reduce(value func(Report) float64) float64 {
	var sum float64
	for _, i := range slices.Sorted(maps.Keys(a.reports)) {
		sum += value(a.reports[i])
	}
	return sum / math.Max(a.Targets(), 1) // not a product: the bits would differ
}
