// Package telemetry keeps what a run tells of itself, and the files in its folder that have it, an
// object a line: a Record for each step (metrics.jsonl), Marks for what happened to the run
// (events.jsonl), Stats of layers and memory every so many steps (stats.jsonl), a Sample of
// text for each validation (samples.jsonl), Traces (trace.jsonl); and a Meter for speed and time left.
//
// The package imports the standard library, internal/host/folder and scheduler, for what a trace holds. It must never know
// what computes the figures, or who shows them; it reads no clock.
package telemetry

import (
	"encoding/json"
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
	// PeakPct is what the model's operations in a second are of the processor's peak (model FLOPs
	// utilisation). They are those that the model asks for, a forward and twice as many for the
	// backward, whatever was recomputed; the peak is what one large matrix product in the run's type
	// of numbers reaches on the cores of the run, measured once for some 50 ms at its start. So it
	// says how far training is from nothing but large products, and it is as uncertain as such a
	// short measurement; where other programs used the cores then, it is too high, until a step is
	// faster than the peak and becomes the peak. nil: the peak is not known,
	// as of GPUs and of other hosts.
	PeakPct *float64
	// CPUCores is how many cores the run's process kept busy during the step, on average: the time that it
	// spent on cores divided by the step's. Workers on other hosts don't count. nil: the system doesn't tell.
	CPUCores *float64
	Skipped  bool   // the update was not applied
	Update   string // how it was made: "kept", "rolled_back" or "waited"; empty where there is one way
	// What the model's own layers report beside the loss, such as a classifier's accuracy, of
	// the step and of the validation; nil: nothing.
	Metrics, ValMetrics map[string]float64
}

// fixed is what a line has besides Figures.
type fixed struct {
	Step    *int   `json:"step"`
	Tokens  int64  `json:"tokens"`
	Skipped bool   `json:"skipped"`
	Update  string `json:"update"`

	Metrics    figures `json:"metrics"`
	ValMetrics figures `json:"val_metrics"`
}

// MarshalJSON writes the record with the keys of metrics.jsonl: what is learned, then the tokens,
// then what the machine made of it.
func (r Record) MarshalJSON() ([]byte, error) {
	text := strconv.AppendInt([]byte(`{"step":`), int64(r.Step), 10)
	text = r.appendFigures(text, false)
	if r.Tokens != 0 {
		text = strconv.AppendInt(append(text, `,"tokens":`...), r.Tokens, 10)
	}
	text = r.appendFigures(text, true)
	if r.Skipped {
		text = append(text, `,"skipped":true`...)
	}
	more, err := json.Marshal(struct {
		Update     string  `json:"update,omitzero"`
		Metrics    figures `json:"metrics,omitempty"`
		ValMetrics figures `json:"val_metrics,omitempty"`
	}{r.Update, figuresOf(r.Metrics), figuresOf(r.ValMetrics)})
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

// UnmarshalJSON reads what MarshalJSON writes. Other keys are ignored: a later
// version may have more.
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
	*r = Record{Step: *l.Step, Tokens: l.Tokens, Skipped: l.Skipped, Update: l.Update, Metrics: l.Metrics.values(),
		ValMetrics: l.ValMetrics.values()}
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
