package stages

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Report is what the last stage says about one microbatch. The loss of a step is the sum of
// all microbatches' Sum, divided by the sum of their Targets. The gradient that the loss layer
// starts with is that of Sum, and is divided in the same way. The three forms that a loss
// function may have in Megatron-Core are all of this kind:
//
//	per token (loss, tokens):   Sum = loss, Targets = tokens    each token counts the same
//	mean      (loss):           Sum = loss, Targets = 1         each microbatch counts the same
//	          (loss, tokens):   Sum = loss / max(tokens, 1), Targets = 1
//	not a loss:                 Pass.Collect, in runs that go forward only
type Report struct {
	Sum     float64 // of the targets' losses
	Targets float64 // their number
	Metrics []Metric
}

// Metric is a further figure of a microbatch. Over a step, and over a validation, it is the mean,
// ΣSum / ΣCount; with Total it is ΣSum.
type Metric struct {
	Name       string
	Sum, Count float64
	Total      bool
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
	for _, r := range a.ordered() { // they may be sums of weights, and no whole numbers
		n += r.Targets
	}
	return n
}

// Loss reduces the losses, in the order of the microbatches.
func (a *Accumulator) Loss() float64 {
	var sum float64
	for _, r := range a.ordered() {
		sum += r.Sum
	}
	return sum / math.Max(a.Targets(), 1) // not a product: the bits would differ
}

// Metrics reduces the metrics, in the order of the microbatches. Their names are sorted.
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

// Value is the figure of a metric that has been reduced.
func (m Metric) Value() float64 {
	if m.Total {
		return m.Sum
	}
	return m.Sum / math.Max(m.Count, 1)
}

// Metric is the value of one of the metrics; 0 if there is none of that name.
func (a *Accumulator) Metric(name string) float64 {
	for _, m := range a.Metrics() {
		if m.Name == name {
			return m.Value()
		}
	}
	return 0
}

// LossScale is the factor of summed losses, and of their gradient, for a number of targets.
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
