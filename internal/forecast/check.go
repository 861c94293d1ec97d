package forecast

import (
	"context"
	"fmt"

	"github.com/troupe-ml/troupe/internal/bench"
)

// Verdict compares a prediction with a measurement.
type Verdict struct {
	MeasuredStepMS  float64 `json:"measured_step_ms"`
	PredictedStepMS float64 `json:"predicted_step_ms"`
	StepRatio       float64 `json:"step_ratio"`     // predicted by measured, the median over pairs
	MeasuredBytes   int64   `json:"measured_bytes"` // 0: the system does not tell
	PredictedBytes  int64   `json:"predicted_bytes"`
	MemoryRatio     float64 `json:"memory_ratio"`
	Pairs           int     `json:"pairs"`
}

// Check trains the configuration on this machine with random tokens. It alternates between
// layers' costs and steps, so that both are measured in the same state of the machine.
func Check(ctx context.Context, load bench.Load, pairs int, seconds float64, progress func(string)) (v *Verdict, err error) {
	steps, err := bench.StartSteps(ctx, load)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closing := steps.Close(); err == nil {
			err = closing
		}
	}()
	b, err := steps.Plan()
	if err == nil {
		err = oneKind(b)
	}
	if err != nil {
		return nil, err
	}
	const settle = 3 // steps until all memory is in place
	if _, _, err := steps.Run(ctx, settle); err != nil {
		return nil, err
	}
	memory := steps.Memory() // before anything is measured beside it
	here := Devices{Devices: 1}
	var measured, predicted, ratios []float64
	for i := range pairs {
		progress(fmt.Sprintf("costs and steps, pair %d of %d", i+1, pairs))
		c, err := Measure(ctx, b, []int{b.Config().Batch.Microbatch}, seconds, nil)
		if err != nil {
			return nil, err
		}
		p, err := Predict(b, c, here)
		if err != nil {
			return nil, err
		}
		n, took, err := steps.Run(ctx, max(2, int(1000*seconds/p.StepMS)))
		if err != nil {
			return nil, err
		}
		ms := 1e3 * took.Seconds() / float64(n)
		measured, predicted, ratios = append(measured, ms), append(predicted, p.StepMS), append(ratios, p.StepMS/ms)
	}
	var held Prediction
	if err := held.Memory(b, here); err != nil {
		return nil, err
	}
	v = &Verdict{MeasuredStepMS: median(measured), PredictedStepMS: median(predicted), StepRatio: median(ratios),
		MeasuredBytes: memory.PeakBytes, PredictedBytes: held.TensorBytes[0], Pairs: pairs}
	if memory.DeviceTakenBytes > 0 {
		v.MeasuredBytes = memory.DeviceTakenBytes
	}
	if v.MeasuredBytes > 0 {
		v.MemoryRatio = float64(v.PredictedBytes) / float64(v.MeasuredBytes)
	}
	return v, nil
}
