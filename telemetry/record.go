// Package telemetry reads and writes the files in which a run records itself, one JSON object a line:
// a Record for each step (metrics.jsonl), Marks for the events of the run (events.jsonl), Stats of
// layers and memory (stats.jsonl), a Sample of text for each validation (samples.jsonl) and Traces
// (trace.jsonl). A Meter smooths speed and estimates the remaining time.
//
// The package imports only the standard library, internal/host/folder, and scheduler for the table of
// a trace. It must not depend on the code that computes the metrics or shows them; it reads no clock.
package telemetry

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Record holds the metrics of one step. Step counts finished updates; the record of step 0 is the validation before
// training. A nil metric was not measured. A NaN or infinite one was, and is null in the file.
type Record struct {
	Step         int
	Loss         *float64 // mean over target tokens
	MTPLoss      *float64 // multi-token prediction: mean over its layers; not part of Loss
	ValLoss      *float64
	GradNorm     *float64 // before clipping
	LR           *float64
	Targets      *float64 // target tokens of the step; nil: the data is not documents
	FullPct      *float64 // share of the positions of the step's sequences that have tokens, in percent; nil: as Targets
	Tokens       int64    // tokens of all steps so far, or samples if the data is not text
	Epoch        float64  // how often the training data has been used so far; 0: unknown
	TimeMS       int64    // Unix time of the end of the step in milliseconds; 0: unknown
	TokensPerS   *float64
	StepMS       *float64
	ShadowMS     *float64 // part of StepMS in which only shadows had not got their gradients; nil: there are none (cluster.shadow)
	BubblePct    *float64 // share of the ranks' time without a running action, in percent
	PeakMemBytes int64    // 0: unknown
	// PeakPct is the model FLOPs utilization (MFU) in percent: the model's floating-point operations per second by
	// the processor's peak. The operations are a forward pass and twice as many for the backward pass, whatever was
	// recomputed. The peak is the speed of a large matrix product in the run's number type on the run's cores,
	// measured for about 50 ms at its start. Such a short measurement is uncertain: if other programs use the cores
	// meanwhile, PeakPct is too high until a faster step sets a new peak. nil: the peak is not known, as for GPUs and
	// other hosts.
	PeakPct *float64
	// CPUCores is the average number of cores that the run's process used in the step: its CPU time divided by the
	// step's duration. Workers on other hosts do not count. nil: the system does not report it.
	CPUCores *float64
	Skipped  bool   // the update was not applied
	Update   string // how the update was applied: "kept", "rolled_back" or "waited"; empty without pipeline.post_validation
	// Metrics and ValMetrics are what the model's own layers report in addition to the loss, such as a classifier's accuracy,
	// for the step and for the validation; nil: nothing.
	Metrics, ValMetrics map[string]float64
	// ValLosses are the losses of the further validation sets by name, each [[eval]] of the configuration; nil: there are none. Without
	// data.val and data.val_fraction, ValLoss is that of the first one.
	ValLosses map[string]float64
}

// fixed has the keys of a line that are not in Figures.
type fixed struct {
	Step    *int    `json:"step"`
	Tokens  int64   `json:"tokens"`
	Epoch   float64 `json:"epoch"`
	TimeMS  int64   `json:"time_ms"`
	Skipped bool    `json:"skipped"`
	Update  string  `json:"update"`

	Metrics    figures `json:"metrics"`
	ValMetrics figures `json:"val_metrics"`
	ValLosses  figures `json:"val_losses"`
}

// MarshalJSON writes the record with the keys of metrics.jsonl: first what is learned, then the tokens, then what
// depends on the machine.
func (r Record) MarshalJSON() ([]byte, error) {
	text := strconv.AppendInt([]byte(`{"step":`), int64(r.Step), 10)
	text = r.appendFigures(text, false)
	if r.Tokens != 0 {
		text = strconv.AppendInt(append(text, `,"tokens":`...), r.Tokens, 10)
	}
	if r.Epoch > 0 {
		text = figure{&r.Epoch}.append(append(text, `,"epoch":`...))
	}
	text = r.appendFigures(text, true)
	if r.TimeMS != 0 {
		text = strconv.AppendInt(append(text, `,"time_ms":`...), r.TimeMS, 10)
	}
	if r.Skipped {
		text = append(text, `,"skipped":true`...)
	}
	more, err := json.Marshal(struct {
		Update     string  `json:"update,omitzero"`
		Metrics    figures `json:"metrics,omitempty"`
		ValMetrics figures `json:"val_metrics,omitempty"`
		ValLosses  figures `json:"val_losses,omitempty"`
	}{r.Update, figuresOf(r.Metrics), figuresOf(r.ValMetrics), figuresOf(r.ValLosses)})
	if err != nil {
		return nil, err
	}
	if len(more) > len("{}") {
		text = append(append(text, ','), more[1:len(more)-1]...)
	}
	return append(text, '}'), nil
}

// appendFigures writes the figures that depend on the machine, or the others.
func (r *Record) appendFigures(text []byte, machine bool) []byte {
	for i := range Figures {
		f := &Figures[i]
		v := f.Get(r)
		if v == nil || f.Machine != machine {
			continue
		}
		text = append(append(append(text, `,"`...), f.Name...), `":`...)
		if f.whole != nil {
			text = strconv.AppendInt(text, *f.whole(r), 10)
		} else {
			text = figure{v}.append(text)
		}
	}
	return text
}

// UnmarshalJSON reads a line that MarshalJSON wrote. It ignores unknown keys: a later version may write more.
func (r *Record) UnmarshalJSON(data []byte) error {
	var l fixed
	if err := json.Unmarshal(data, &l); err != nil {
		return err
	}
	if err := checkStep(l.Step); err != nil {
		return err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return err
	}
	*r = Record{Step: *l.Step, Tokens: l.Tokens, Epoch: l.Epoch, TimeMS: l.TimeMS, Skipped: l.Skipped, Update: l.Update,
		Metrics:    l.Metrics.values(),
		ValMetrics: l.ValMetrics.values(), ValLosses: l.ValLosses.values()}
	for i := range Figures {
		f := &Figures[i]
		text, ok := keys[f.Name]
		if !ok {
			continue
		}
		var err error
		if f.whole != nil {
			err = json.Unmarshal(text, f.whole(r))
		} else {
			var v figure
			err = v.UnmarshalJSON(text)
			f.Set(r, v.v)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return nil
}

// figures are values by name.
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

// figure is a float64 that may be absent (v is nil). It is null in JSON if it is not finite.
type figure struct{ v *float64 }

func (f figure) MarshalJSON() ([]byte, error) { return f.append(nil), nil }

func (f figure) append(text []byte) []byte {
	if f.v == nil || math.IsNaN(*f.v) || math.IsInf(*f.v, 0) {
		return append(text, "null"...)
	}
	// The fewest digits that read back as the same number.
	return strconv.AppendFloat(text, *f.v, 'g', -1, 64)
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
