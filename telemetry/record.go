// Package telemetry keeps what a run tells of itself, and the files in its folder that have it, an
// object a line: a Record for each step (metrics.jsonl), Marks for what happened to the run
// (events.jsonl), Stats of layers and memory every so many steps (stats.jsonl), a Sample of
// text for each validation (samples.jsonl), Traces (trace.jsonl); and a Meter for speed and time left.
//
// The package imports the standard library and internal/host/folder. It must never know
// what computes the figures, or who shows them; it reads no clock.
package telemetry

import (
	"encoding/json"
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
	// PeakPct is what the model's operations in a second are of the processor's peak (model FLOPs
	// utilisation). They are those that the model asks for, a forward and twice as many for the
	// backward, whatever was recomputed; the peak is what one large matrix product in the run's type
	// of numbers reaches on the cores of the run, measured once for some 50 ms at its start. So it
	// says how far training is from nothing but large products, and it is as uncertain as such a
	// short measurement; where other programs used the cores then, it is too high, until a step is
	// faster than the peak and becomes the peak. nil: the peak is not known,
	// as of GPUs and of other hosts.
	PeakPct *float64
	Skipped bool   // the update was not applied
	Update  string // how it was made: "kept", "rolled_back" or "waited"; empty where there is one way
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
	PeakPct      figure `json:"peak_pct,omitzero"`
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
		PeakPct:      figure{r.PeakPct},
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
	if err := checkStep(l.Step); err != nil {
		return err
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
		PeakPct:      l.PeakPct.v,
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
