package stages

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Report is the loss of one microbatch, from the last stage. The loss of a step is the total of all
// microbatches' Sum, divided by the total of their Targets. The loss layer's gradient is that of
// Sum, divided in the same way. All three forms of a loss function in Megatron-Core can be
// expressed:
//
//	per token (loss, tokens):   Sum = loss, Targets = tokens    each token counts the same
//	mean      (loss):           Sum = loss, Targets = 1         each microbatch counts the same
//	          (loss, tokens):   Sum = loss / max(tokens, 1), Targets = 1
//	not a loss:                 Pass.Collect, in forward-only runs
type Report struct {
	Sum     float64 // total loss of the targets
	Targets float64 // number of targets
	Metrics []Metric
}

// Metric is a further metric of a microbatch. Over a step or a validation its value is the mean,
// ΣSum / ΣCount, or ΣSum if Total is set.
type Metric struct {
	Name       string
	Sum, Count float64
	Total      bool
}

// Accumulator adds the reports of a step: the total loss of all microbatches, divided by the number
// of targets in the whole step. So each target counts the same, whichever microbatch it is in. The
// order in which reports arrive does not matter: they are added in the order of the microbatches.
type Accumulator struct {
	reports map[int]Report
}

// NewAccumulator makes an empty Accumulator.
func NewAccumulator() *Accumulator { return &Accumulator{reports: make(map[int]Report)} }

// Add adds the report of a microbatch. A second report of the same microbatch is an ErrMicrobatch.
func (a *Accumulator) Add(microbatch int, r Report) error {
	if _, twice := a.reports[microbatch]; twice {
		return fmt.Errorf("%w: microbatch %d reports its loss twice", ErrMicrobatch, microbatch)
	}
	a.reports[microbatch] = r
	return nil
}

// Between returns an Accumulator with the reports of the microbatches [first, end) alone.
func (a *Accumulator) Between(first, end int) *Accumulator {
	part := NewAccumulator()
	for m, r := range a.reports {
		if m >= first && m < end {
			part.reports[m] = r
		}
	}
	return part
}

// Targets returns the number of targets in the reports.
func (a *Accumulator) Targets() float64 {
	var n float64
	for _, r := range a.ordered() { // they may be sums of weights and need not be integers
		n += r.Targets
	}
	return n
}

// Loss returns the mean loss, added in the order of the microbatches.
func (a *Accumulator) Loss() float64 {
	var sum float64
	for _, r := range a.ordered() {
		sum += r.Sum
	}
	return sum / math.Max(a.Targets(), 1) // not a product, which would give other bits
}

// Metrics returns the totals of the metrics, added in the order of the microbatches and sorted by
// name.
func (a *Accumulator) Metrics() []Metric {
	sums := make(map[string]*Metric)
	for _, r := range a.ordered() {
		for _, m := range r.Metrics {
			s := sums[m.Name]
			if s == nil {
				s = &Metric{Name: m.Name, Total: m.Total}
				sums[m.Name] = s
			}
			s.Sum, s.Count = s.Sum+m.Sum, s.Count+m.Count
		}
	}
	var out []Metric
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		out = append(out, *sums[name])
	}
	return out
}

// Value returns the value of a metric: ΣSum / ΣCount, or ΣSum for a Total.
func (m Metric) Value() float64 {
	if m.Total {
		return m.Sum
	}
	return m.Sum / math.Max(m.Count, 1)
}

// Metric returns the value of the metric with the given name; 0 if it does not exist.
func (a *Accumulator) Metric(name string) float64 {
	for _, m := range a.Metrics() {
		if m.Name == name {
			return m.Value()
		}
	}
	return 0
}

// LossScale returns the factor for summed losses, and for their gradient, for a number of targets.
func LossScale(targets float64) float64 { return 1 / math.Max(targets, 1) }

// Reset empties the accumulator for the next step.
func (a *Accumulator) Reset() { clear(a.reports) }

func (a *Accumulator) ordered() []Report {
	var rs []Report
	for _, i := range slices.Sorted(maps.Keys(a.reports)) {
		rs = append(rs, a.reports[i])
	}
	return rs
}
