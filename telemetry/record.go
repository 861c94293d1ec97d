// Package telemetry keeps the figures of a run: a Record for each step, the file
// metrics.jsonl that they are written to and read from, a Meter for speed and
// time left, and the process's peak memory.
//
// The package imports the standard library and internal/folder. It must never know
// what computes the figures, or who shows them; it reads no clock.
package telemetry

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Record is what one step reports. Step counts finished updates; the record of
// step 0 is the validation before training. A nil figure was not taken; one that
// is NaN or infinite was, and is null in the file.
type Record struct {
	Step         int
	Loss         *float64 // mean over target tokens
	MTPLoss      *float64 // of multi-token prediction: mean over its layers; not in Loss
	ValLoss      *float64
	GradNorm     *float64 // before clipping
	LR           *float64
	Tokens       int64 // of all steps so far; of models whose data are no text, samples
	TokensPerS   *float64
	StepMS       *float64
	BubblePct    *float64 // share of rank-time without a running action
	PeakMemBytes int64    // 0: unknown
	Skipped      bool     // the update was not applied
	Update       string   // how it was made: "kept", "rolled_back" or "waited"; empty where there is one way
	// What the model's own layers report beside the loss, such as a classifier's accuracy, of
	// the step and of the validation; nil: nothing.
	Metrics, ValMetrics map[string]float64
}

// line is a Record as the file has it.
type line struct {
	Step         *int   `json:"step"`
	Loss         figure `json:"loss,omitzero"`
	MTPLoss      figure `json:"mtp_loss,omitzero"`
	ValLoss      figure `json:"val_loss,omitzero"`
	GradNorm     figure `json:"grad_norm,omitzero"`
	LR           figure `json:"lr,omitzero"`
	Tokens       int64  `json:"tokens,omitzero"`
	TokensPerS   figure `json:"tokens_per_s,omitzero"`
	StepMS       figure `json:"step_ms,omitzero"`
	BubblePct    figure `json:"bubble_pct,omitzero"`
	PeakMemBytes int64  `json:"peak_mem_bytes,omitzero"`
	Skipped      bool   `json:"skipped,omitzero"`
	Update       string `json:"update,omitzero"`

	Metrics    figures `json:"metrics,omitempty"`
	ValMetrics figures `json:"val_metrics,omitempty"`
}

// MarshalJSON writes the record with the keys of metrics.jsonl.
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(line{
		Step:         &r.Step,
		Loss:         figure{r.Loss},
		MTPLoss:      figure{r.MTPLoss},
		ValLoss:      figure{r.ValLoss},
		GradNorm:     figure{r.GradNorm},
		LR:           figure{r.LR},
		Tokens:       r.Tokens,
		TokensPerS:   figure{r.TokensPerS},
		StepMS:       figure{r.StepMS},
		BubblePct:    figure{r.BubblePct},
		PeakMemBytes: r.PeakMemBytes,
		Skipped:      r.Skipped,
		Update:       r.Update,
		Metrics:      figuresOf(r.Metrics),
		ValMetrics:   figuresOf(r.ValMetrics),
	})
}

// UnmarshalJSON reads what MarshalJSON writes. Other keys are ignored: a later
// version may have more.
func (r *Record) UnmarshalJSON(data []byte) error {
	var l line
	if err := json.Unmarshal(data, &l); err != nil {
		return err
	}
	switch {
	case l.Step == nil:
		return errors.New(`there is no "step"`)
	case *l.Step < 0:
		return fmt.Errorf("the step is %d", *l.Step)
	}
	*r = Record{
		Step:         *l.Step,
		Loss:         l.Loss.v,
		MTPLoss:      l.MTPLoss.v,
		ValLoss:      l.ValLoss.v,
		GradNorm:     l.GradNorm.v,
		LR:           l.LR.v,
		Tokens:       l.Tokens,
		TokensPerS:   l.TokensPerS.v,
		StepMS:       l.StepMS.v,
		BubblePct:    l.BubblePct.v,
		PeakMemBytes: l.PeakMemBytes,
		Skipped:      l.Skipped,
		Update:       l.Update,
		Metrics:      l.Metrics.values(),
		ValMetrics:   l.ValMetrics.values(),
	}
	return nil
}

// figures are named ones.
type figures map[string]figure

func figuresOf(values map[string]float64) figures {
	if values == nil {
		return nil
	}
	f := make(figures, len(values))
	for name, v := range values {
		f[name] = figure{&v}
	}
	return f
}

func (f figures) values() map[string]float64 {
	if f == nil {
		return nil
	}
	values := make(map[string]float64, len(f))
	for name, v := range f {
		values[name] = math.NaN()
		if v.v != nil {
			values[name] = *v.v
		}
	}
	return values
}

// figure is a float64 that may be absent (v is nil), or null where JSON has no
// number for it.
type figure struct{ v *float64 }

func (f figure) MarshalJSON() ([]byte, error) {
	if f.v == nil || math.IsNaN(*f.v) || math.IsInf(*f.v, 0) {
		return []byte("null"), nil
	}
	// The fewest digits that read back as the same number.
	return strconv.AppendFloat(nil, *f.v, 'g', -1, 64), nil
}

func (f *figure) UnmarshalJSON(data []byte) error {
	v := math.NaN()
	if string(data) != "null" {
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
	}
	f.v = &v
	return nil
}
