package stages

import (
	"fmt"
	"math"
	"sort"
)

// Reduce says how the losses of a step's microbatches become one number, and
// how the gradient is scaled so that it is that number's gradient.
type Reduce uint8

const (
	// ReduceTokens: the sums of all microbatches, divided by the number of
	// targets in the whole step. The rule of Troupe's own training: a target
	// counts the same wherever it stands.
	ReduceTokens Reduce = iota
	// ReduceMicrobatchTokens: each microbatch's sum divided by its own targets
	// (at least 1), then by the number of microbatches.
	ReduceMicrobatchTokens
	// ReduceMicrobatches: the loss is a finished number; divided by the number
	// of microbatches.
	ReduceMicrobatches
	// ReduceNone: not a loss. Whatever each microbatch reports is kept whole.
	ReduceNone
)

// Report is what the last stage says about one microbatch.
type Report struct {
	Sum     float64            // of the targets' losses, or the finished loss
	Targets float64            // their number
	Metrics map[string]float64 // further sums, reduced as the loss is
	Data    any                // for ReduceNone
	reduce  Reduce
}

// MeanReport is the form (loss, metrics): the loss of a microbatch is finished.
func MeanReport(loss float64, metrics map[string]float64) Report {
	return Report{Sum: loss, Targets: 1, Metrics: metrics, reduce: ReduceMicrobatches}
}

// TokenReport is the form (loss sum, tokens, metrics). perToken divides once by
// the step's tokens; otherwise each microbatch by its own.
func TokenReport(sum, targets float64, metrics map[string]float64, perToken bool) Report {
	r := Report{Sum: sum, Targets: targets, Metrics: metrics, reduce: ReduceMicrobatchTokens}
	if perToken {
		r.reduce = ReduceTokens
	}
	return r
}

// DataReport is the form without a loss: named outputs, stored whole.
func DataReport(data any) Report { return Report{Data: data, reduce: ReduceNone} }

// Scale is the factor of a target's loss in the gradient of a microbatch with
// the given targets, of which the step has the given number.
func (r Reduce) Scale(targets float64, microbatches int) float64 {
	switch r {
	case ReduceMicrobatchTokens:
		return 1 / (math.Max(targets, 1) * float64(microbatches))
	case ReduceMicrobatches:
		return 1 / float64(microbatches)
	}
	return 1
}

// Final is the factor of the gradient at the end of the step, whose
// microbatches had the given targets together.
func (r Reduce) Final(targets float64) float64 {
	if r == ReduceTokens {
		return 1 / math.Max(targets, 1)
	}
	return 1
}

// Accumulator adds the reports of a step. The order in which they come doesn't
// matter: they are added by microbatch.
type Accumulator struct {
	reduce  Reduce
	reports map[int]Report
}

// NewAccumulator makes one for a rule.
func NewAccumulator(r Reduce) *Accumulator {
	return &Accumulator{reduce: r, reports: make(map[int]Report)}
}

// Add takes the report of a microbatch.
func (a *Accumulator) Add(microbatch int, r Report) error {
	if r.reduce != a.reduce {
		return fmt.Errorf("%w: microbatch %d reports by another rule (%d) than the step's (%d)", ErrInput, microbatch, r.reduce, a.reduce)
	}
	if _, twice := a.reports[microbatch]; twice {
		return fmt.Errorf("%w: microbatch %d reports its loss twice", ErrFlight, microbatch)
	}
	a.reports[microbatch] = r
	return nil
}

// Len is the number of reports.
func (a *Accumulator) Len() int { return len(a.reports) }

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
	return a.fold(func(r Report) (float64, bool) { return r.Sum, true })
}

// Metric reduces a metric by the loss's rule.
func (a *Accumulator) Metric(name string) float64 {
	return a.fold(func(r Report) (float64, bool) { v, ok := r.Metrics[name]; return v, ok })
}

// Data lists what the microbatches stored, in their order.
func (a *Accumulator) Data() []any {
	var out []any
	for _, i := range a.order() {
		out = append(out, a.reports[i].Data)
	}
	return out
}

// Reset empties the accumulator for the next step.
func (a *Accumulator) Reset() { clear(a.reports) }

func (a *Accumulator) order() []int {
	order := make([]int, 0, len(a.reports))
	for i := range a.reports {
		order = append(order, i)
	}
	sort.Ints(order)
	return order
}

func (a *Accumulator) fold(value func(Report) (float64, bool)) float64 {
	var sum float64
	m := float64(len(a.reports))
	for _, i := range a.order() {
		r := a.reports[i]
		v, ok := value(r)
		if !ok {
			continue
		}
		switch a.reduce {
		case ReduceMicrobatchTokens:
			v = v / math.Max(r.Targets, 1) / m
		case ReduceMicrobatches:
			v /= m
		}
		sum += v
	}
	if a.reduce == ReduceTokens {
		sum /= math.Max(a.Targets(), 1)
	}
	return sum
}
