package stages_test

import (
	"errors"
	"math"
	"testing"

	"github.com/troupe-ml/troupe/stages"
)

// Three microbatches with 4, 1 and 0 targets.
func TestReduce(t *testing.T) {
	sums, targets := []float64{8, 3, 0}, []float64{4, 1, 0}
	a := stages.NewAccumulator()
	report := func(i int) stages.Report {
		return stages.Report{Sum: sums[i], Targets: targets[i], Metrics: []stages.Metric{{Name: "hits", Sum: 2, Count: targets[i]},
			{Name: "all", Sum: 2, Total: true}}}
	}
	for _, i := range []int{2, 0, 1} { // the order of arrival doesn't matter
		if err := a.Add(i, report(i)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := a.Loss(), 11.0/5; math.Abs(got-want) > 1e-15 {
		t.Errorf("loss %g, want %g", got, want)
	}
	if got, want := a.Metric("hits"), 6.0/5; math.Abs(got-want) > 1e-15 {
		t.Errorf("metric %g, want %g", got, want)
	}
	if got := a.Metric("all"); got != 6 {
		t.Errorf("total %g, want 6", got)
	}
	if err := a.Add(1, report(1)); !errors.Is(err, stages.ErrMicrobatch) {
		t.Errorf("a second report of a microbatch gives %v", err)
	}
	a.Reset()
	if got := a.Loss(); got != 0 {
		t.Errorf("loss %g after Reset", got)
	}
}

// The scale of the gradient is the derivative of the reduced loss by one
// target's loss.
func TestLossScaleIsTheDerivative(t *testing.T) {
	loss := func(extra float64) (float64, float64) {
		a := stages.NewAccumulator()
		for i, n := range []float64{4, 1, 2} {
			sum := 3 * n
			if i == 1 {
				sum += extra
			}
			if err := a.Add(i, stages.Report{Sum: sum, Targets: n}); err != nil {
				t.Fatal(err)
			}
		}
		return a.Loss(), a.Targets()
	}
	base, n := loss(0)
	more, _ := loss(1)
	if got := stages.LossScale(n); math.Abs(got-(more-base)) > 1e-12 {
		t.Errorf("scale %g, derivative %g", got, more-base)
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
		{stages.Linear, 1051, 5.5e-4}, {stages.Linear, 576, 7.75e-4}, {stages.Linear, 2001, 1e-4}, {stages.Constant, 1999, 1e-3},
		{stages.Constant, 1, 1e-3 / 101},
	} {
		r.Decay = c.decay
		if got := r.At(c.step); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: step %d has %g, want %g", c.decay, c.step, got, c.want)
		}
	}
	wsd := stages.Rate{LR: 1, MinLR: 0.1, Warmup: 10, Steps: 1000, Decay: stages.WSD, DecaySteps: 100}
	for step, want := range map[int64]float64{1: 1.0 / 11, 10: 10.0 / 11, 11: 1, 900: 1, 901: 0.1 + 0.9*0.9, 925: 0.1 + 0.9*0.5, 1000: 0.1,
		1001: 0.1} {
		if got := wsd.At(step); math.Abs(got-want) > 1e-12 {
			t.Errorf("wsd: step %d has %g, want %g", step, got, want)
		}
	}
	restarts := stages.Rate{LR: 1, MinLR: 0.1, Warmup: 10, Steps: 1000, Decay: stages.CosineRestarts, DecaySteps: 100}
	for step, want := range map[int64]float64{10: 10.0 / 11, 11: 1, 36: 0.1 + 0.9*0.5*(1+math.Sqrt2/2), 61: 0.55, 111: 1, 161: 0.55,
		1111: 1} {
		if got := restarts.At(step); math.Abs(got-want) > 1e-12 {
			t.Errorf("cosine_restarts: step %d has %g, want %g", step, got, want)
		}
	}
	// transformers' get_inverse_sqrt_schedule with num_warmup_steps=10 has, n steps after its warm-up, √(10/(10+n)).
	inverse := stages.Rate{LR: 1, MinLR: 0.1, Warmup: 10, Steps: 1000, Decay: stages.InverseSqrt, DecaySteps: 10}
	for step, want := range map[int64]float64{10: 10.0 / 11, 11: 1, 21: math.Sqrt(0.5), 41: 0.5, 1001: 0.1, 901: math.Sqrt(10.0 / 900)} {
		if got := inverse.At(step); math.Abs(got-want) > 1e-12 {
			t.Errorf("inverse_sqrt: step %d has %g, want %g", step, got, want)
		}
	}
	if got := (stages.Rate{LR: 1, MinLR: 0.1, Warmup: 5, Steps: 6, Decay: stages.Cosine}).At(6); got != 1 {
		t.Errorf("a single step after the warm-up has %g", got)
	}
	if got := (stages.Rate{LR: 1, MinLR: 0.1, Warmup: 5, Steps: 5, Decay: stages.Cosine}).At(5); math.IsNaN(got) {
		t.Error("a run that only warms up has no rate")
	}
}

// The three forms that a loss function may have in Megatron-Core (its schedules' documentation,
// forward_step), as Reports: what a step's loss is made of its microbatches'.
func TestLossForms(t *testing.T) {
	losses, tokens := []float64{8, 3, 0.5}, []float64{4, 1, 0}
	for name, c := range map[string]struct {
		report func(loss, tokens float64) stages.Report
		want   float64
	}{
		// (loss, metrics): divided by the number of microbatches.
		"mean": {func(loss, _ float64) stages.Report { return stages.Report{Sum: loss, Targets: 1} }, (8 + 3 + 0.5) / 3},
		// (loss, tokens, metrics), per token: summed and divided by all tokens at the end.
		"per token": {func(loss, tokens float64) stages.Report { return stages.Report{Sum: loss, Targets: tokens} }, (8 + 3 + 0.5) / 5},
		// (loss, tokens, metrics): divided by max(tokens, 1) and by the number of microbatches.
		"per microbatch": {func(loss, tokens float64) stages.Report {
			return stages.Report{Sum: loss / math.Max(tokens, 1), Targets: 1}
		}, (8./4 + 3./1 + 0.5/1) / 3},
	} {
		a := stages.NewAccumulator()
		for i := range losses {
			if err := a.Add(i, c.report(losses[i], tokens[i])); err != nil {
				t.Fatal(err)
			}
		}
		if got := a.Loss(); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("%s: loss %g, want %g", name, got, c.want)
		}
	}
}
