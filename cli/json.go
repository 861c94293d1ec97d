package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// jsonReporter writes one JSON object per line. Each has the key "event"; a step also has the keys of
// metrics.jsonl. Warnings also go to the error stream.
type jsonReporter struct {
	app     *app
	began   time.Time
	steps   int
	skipped int
}

// emit writes an event with its name and the fields of v.
func (j *jsonReporter) emit(event string, v any) {
	fields, err := json.Marshal(v)
	if err != nil {
		say(j.app.err, "event %q: %v", event, err)
		return
	}
	// The record of a step marshals itself, so the name is inserted into its object.
	_, _ = fmt.Fprintf(j.app.jsonOut(), "{\"event\":%q,%s\n", event, fields[1:])
}

func (j *jsonReporter) begin(i troupe.Info) {
	j.began, j.steps = j.app.now(), i.Steps
	j.emit("start", struct {
		Name         string  `json:"name"`
		Out          string  `json:"out"`
		ID           string  `json:"id,omitempty"`
		Family       string  `json:"family"`
		Parameters   int64   `json:"parameters"`
		Frozen       int64   `json:"frozen,omitempty"`
		Vocab        int     `json:"vocab"`
		TrainTokens  int64   `json:"train_tokens"`
		ValTokens    int64   `json:"val_tokens"`
		EvalWindows  int     `json:"eval_windows"`
		EpochWindows int64   `json:"epoch_windows"`
		EpochSteps   float64 `json:"epoch_steps"`
		Epochs       float64 `json:"epochs"`
		Steps        int     `json:"steps"`
		ResumedAt    int     `json:"resumed_at"`
		Schedule     string  `json:"schedule"`
		Stages       int     `json:"stages"`
		Ranks        int     `json:"ranks"`
		Grid         string  `json:"grid,omitempty"`
		Chunks       int     `json:"chunks"`
		Microbatches int     `json:"microbatches"`
		Layout       string  `json:"layout"`
		BubblePct    float64 `json:"ideal_bubble_pct"`
		PeakInFlight []int   `json:"peak_in_flight"`
		Device       string  `json:"device"`
		Threads      int     `json:"threads"`
		Samples      bool    `json:"samples,omitempty"`
		Classes      string  `json:"classes,omitempty"`
		Text         string  `json:"text,omitempty"`
		Auto         string  `json:"auto,omitempty"`
		Kernels      string  `json:"kernels"`
	}(i))
}

func (j *jsonReporter) event(e troupe.Event) {
	m, _ := event.MarkOf(e, 0)
	if m.Warns() {
		j.notice("engine: warning: " + indented(m.Text))
	}
	switch e := e.(type) {
	case troupe.StepEvent:
		if e.Skipped {
			j.skipped++
		}
		j.emit("step", e.Record)
	case troupe.CheckpointEvent:
		j.emit("checkpoint", struct {
			Step   int64   `json:"step"`
			Dir    string  `json:"dir"`
			Best   bool    `json:"best"`
			TookMS float64 `json:"took_ms"`
			Text   string  `json:"text"`
		}{e.Step, e.Dir, e.Best, e.Took.Seconds() * 1000, m.Text})
	case troupe.WarningEvent:
		j.emit("warning", struct {
			Text string `json:"text"`
		}{m.Text})
	case troupe.RestartEvent:
		j.emit("restart", struct {
			Error   string `json:"error"`
			Restart int    `json:"restart"`
			Most    int    `json:"max_restarts"`
			Text    string `json:"text"`
		}{e.Err.Error(), e.Restart, e.Most, m.Text})
	case troupe.PauseEvent:
		j.emit("pause", struct {
			Step   int64  `json:"step"`
			Paused bool   `json:"paused"`
			Text   string `json:"text"`
		}{e.Step, e.Paused, m.Text})
	case troupe.StallEvent:
		j.notice(e.Status.Table())
		j.emit("stall", struct {
			QuietS float64 `json:"quiet_s"`
			Root   string  `json:"root"`
			Text   string  `json:"text"`
		}{e.Quiet.Seconds(), e.Status.Explain(), m.Text})
	}
}

func (j *jsonReporter) notice(text string) {
	_, _ = fmt.Fprintln(j.app.err, strings.TrimRight(text, "\n"))
}

func (j *jsonReporter) close() {}

func (j *jsonReporter) end(res troupe.Result) {
	j.emit("end", struct {
		Step         int      `json:"step"`
		Steps        int      `json:"steps"`
		Stopped      bool     `json:"stopped"`         // by a signal, before the last step
		Early        bool     `json:"early,omitempty"` // before the last step, by run.patience
		FirstValLoss *float64 `json:"first_val_loss"`
		ValLoss      *float64 `json:"val_loss"`
		BestValLoss  *float64 `json:"best_val_loss"`
		BestStep     int      `json:"best_step"`
		Skipped      int      `json:"skipped"`
		Updates      *updates `json:"updates,omitempty"` // where the run post-validates
		Checkpoint   string   `json:"checkpoint"`
		ElapsedS     float64  `json:"elapsed_s"`
	}{res.Step, j.steps, res.Stopped, res.Early, figure(res.FirstValLoss), figure(res.LastValLoss), figure(res.BestValLoss), res.BestStep,
		j.skipped, updatesOf(res), res.Dir, j.app.now().Sub(j.began).Seconds()})
}

// updates counts steps by the way in which their weights were updated.
type updates struct {
	Kept       int64 `json:"kept"`
	RolledBack int64 `json:"rolled_back"`
	Waited     int64 `json:"waited"`
}

func updatesOf(res troupe.Result) *updates {
	if res.Updates == (troupe.Updates{}) {
		return nil
	}
	u := updates(res.Updates)
	return &u
}

func (j *jsonReporter) sample(ctx context.Context, o troupe.GenerateOptions) error {
	var text strings.Builder
	o.Warn, o.Report = j.app.warn, &troupe.GenerateReport{}
	if err := generate(ctx, o, &text); err != nil {
		return err
	}
	j.emit("sample", generated{text.String(), *o.Report})
	return nil
}
