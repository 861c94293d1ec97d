package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// jsonReporter writes one JSON object per line: an event as package event encodes it. Warnings also go to the error
// stream.
type jsonReporter struct {
	app     *app
	began   time.Time
	steps   int
	skipped int
}

// line writes an event, and further keys after its own.
func (j *jsonReporter) line(e troupe.Event, more ...any) {
	text, err := event.Line(e, more...)
	if err != nil {
		say(j.app.err, "event %q: %v", event.Kind(e), err)
		return
	}
	_, _ = fmt.Fprintf(j.app.jsonOut(), "%s\n", text)
}

func (j *jsonReporter) begin(i troupe.Info) {
	j.began, j.steps = j.app.now(), i.Steps
	j.line(event.StartEvent{Info: i})
}

func (j *jsonReporter) event(e troupe.Event) {
	if m, _ := event.MarkOf(e, 0); m.Warns() {
		j.notice("engine: warning: " + indented(m.Text))
	}
	switch s := e.(type) {
	case troupe.StepEvent:
		if s.Skipped {
			j.skipped++
		}
		s.Trace, s.Clocks = nil, nil // trace.jsonl has them
		e = s
	case troupe.StallEvent:
		j.notice(s.Status.Table())
	}
	j.line(e)
}

func (j *jsonReporter) notice(text string) {
	_, _ = fmt.Fprintln(j.app.err, strings.TrimRight(text, "\n"))
}

func (j *jsonReporter) close() {}

func (j *jsonReporter) end(res troupe.Result) {
	res.Steps = j.steps // a coordinator does not send it
	j.line(troupe.EndEvent{Result: res}, struct {
		Skipped  int     `json:"skipped"`
		ElapsedS float64 `json:"elapsed_s"`
	}{j.skipped, j.app.now().Sub(j.began).Seconds()})
}

func (j *jsonReporter) sample(ctx context.Context, o troupe.GenerateOptions) error {
	var text strings.Builder
	o.Warn, o.Report = j.app.warn, &troupe.GenerateReport{}
	if err := generate(ctx, o, &text); err != nil {
		return err
	}
	r := o.Report
	j.line(event.SampleEvent{Text: text.String(), Context: r.Context, PromptTokens: r.PromptTokens, PromptCut: r.PromptCut, Tokens: r.Tokens,
		WindowMoves: r.WindowMoves})
	return nil
}
