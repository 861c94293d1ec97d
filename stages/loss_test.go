package stages_test

import (
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/troupe-ml/troupe/stages"
)

// Three microbatches with 4, 1 and 0 targets, by each rule.
func TestReduce(t *testing.T) {
	sums, targets := []float64{8, 3, 0}, []float64{4, 1, 0}
	for _, c := range []struct {
		name   string
		reduce stages.Reduce
		report func(i int) stages.Report
		want   float64
		metric float64
	}{
		{"per token", stages.ReduceTokens, func(i int) stages.Report {
			return stages.TokenReport(sums[i], targets[i], map[string]float64{"hits": 2}, true)
		}, 11.0 / 5, 6.0 / 5},
		{"per microbatch's tokens", stages.ReduceMicrobatchTokens, func(i int) stages.Report {
			return stages.TokenReport(sums[i], targets[i], map[string]float64{"hits": 2}, false)
		}, (8.0/4 + 3 + 0) / 3, (2.0/4 + 2 + 2) / 3},
		{"per microbatch", stages.ReduceMicrobatches, func(i int) stages.Report {
			return stages.MeanReport(sums[i], map[string]float64{"hits": 2})
		}, 11.0 / 3, 2},
	} {
		a := stages.NewAccumulator(c.reduce)
		for _, i := range []int{2, 0, 1} { // the order of arrival doesn't matter
			if err := a.Add(i, c.report(i)); err != nil {
				t.Fatal(err)
			}
		}
		if got := a.Loss(); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("%s: loss %g, want %g", c.name, got, c.want)
		}
		if got := a.Metric("hits"); math.Abs(got-c.metric) > 1e-15 {
			t.Errorf("%s: metric %g, want %g", c.name, got, c.metric)
		}
		if err := a.Add(1, c.report(1)); !errors.Is(err, stages.ErrFlight) {
			t.Errorf("%s: a second report of a microbatch gives %v", c.name, err)
		}
	}
}

func TestReduceNone(t *testing.T) {
	a := stages.NewAccumulator(stages.ReduceNone)
	for _, i := range []int{1, 0} {
		if err := a.Add(i, stages.DataReport([]int{i})); err != nil {
			t.Fatal(err)
		}
	}
	if got := a.Data(); !reflect.DeepEqual(got, []any{[]int{0}, []int{1}}) {
		t.Errorf("data %v", got)
	}
	if err := a.Add(2, stages.MeanReport(1, nil)); err == nil {
		t.Error("a loss was accepted among data")
	}
}

// The scale of the gradient is the derivative of the reduced loss by one
// target's loss.
func TestScaleIsTheDerivative(t *testing.T) {
	targets := []float64{4, 1, 2}
	for _, r := range []stages.Reduce{stages.ReduceTokens, stages.ReduceMicrobatchTokens, stages.ReduceMicrobatches} {
		loss := func(extra float64) (float64, float64) {
			a := stages.NewAccumulator(r)
			for i, n := range targets {
				sum := 3 * n
				if i == 1 {
					sum += extra
				}
				report := stages.TokenReport(sum, n, nil, r == stages.ReduceTokens)
				if r == stages.ReduceMicrobatches {
					report = stages.MeanReport(sum, nil)
				}
				if err := a.Add(i, report); err != nil {
					t.Fatal(err)
				}
			}
			return a.Loss(), a.Targets()
		}
		base, n := loss(0)
		more, _ := loss(1)
		if got := r.Scale(targets[1], len(targets)) * r.Final(n); math.Abs(got-(more-base)) > 1e-12 {
			t.Errorf("rule %d: scale %g, derivative %g", r, got, more-base)
		}
	}
}

func TestRate(t *testing.T) {
	r := stages.Rate{LR: 1e-3, MinLR: 1e-4, Warmup: 100, Steps: 2001, Decay: stages.Cosine}
	for _, c := range []struct {
		decay string
		step  int64
		want  float64
	}{
		{stages.Cosine, 1, 1e-3 / 101}, {stages.Cosine, 100, 1e-3 * 100 / 101}, {stages.Cosine, 101, 1e-3},
		{stages.Cosine, 1051, 5.5e-4}, {stages.Cosine, 2001, 1e-4}, {stages.Cosine, 9999, 1e-4},
		{stages.Linear, 1051, 5.5e-4}, {stages.Linear, 576, 7.75e-4}, {stages.Linear, 2001, 1e-4}, {stages.Constant, 1999, 1e-3}, {stages.Constant, 1, 1e-3 / 101},
	} {
		r.Decay = c.decay
		if got := r.At(c.step); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: step %d has %g, want %g", c.decay, c.step, got, c.want)
		}
	}
	if got := (stages.Rate{LR: 1, MinLR: 0.1, Warmup: 5, Steps: 6, Decay: stages.Cosine}).At(6); got != 1 {
		t.Errorf("a single step after the warm-up has %g", got)
	}
	if got := (stages.Rate{LR: 1, MinLR: 0.1, Warmup: 5, Steps: 5, Decay: stages.Cosine}).At(5); math.IsNaN(got) {
		t.Error("a run that only warms up has no rate")
	}
}
