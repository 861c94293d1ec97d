package cli

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/show/term"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// reporter shows a run. Its methods are never called concurrently.
type reporter interface {
	begin(troupe.Info)
	event(troupe.Event)
	notice(text string) // a message to the error stream
	close()             // no more events
	end(troupe.Result)  // after close, if the run did not fail
	sample(context.Context, troupe.GenerateOptions) error
}

func (a *app) newReporter(r training, logEvery int, o runFlags) reporter {
	if o.json {
		return &jsonReporter{app: a}
	}
	if o.view {
		show, why := a.newView(r, logEvery, o.leaves)
		if why == "" {
			return show
		}
		say(a.err, "no view, plain lines instead: %s", why)
	}
	return &textReporter{app: a, screen: term.NewScreen(a.out, a.err, a.width), quiet: o.quiet, logEvery: logEvery}
}

// textReporter writes lines for people, and on a terminal a progress bar.
type textReporter struct {
	app      *app
	screen   *term.Screen
	quiet    bool
	logEvery int

	info       troupe.Info
	began      time.Time
	meter      telemetry.Meter
	since      since
	valLoss    *float64 // the last one
	valMetrics map[string]float64
	valLosses  map[string]float64
	skipped    int
	inRow      int // skipped steps in a row, including the last step
	drawn      time.Time
}

// redrawEvery is the shortest time between two drawings of the bar.
const redrawEvery = 100 * time.Millisecond

func (t *textReporter) begin(i troupe.Info) {
	t.info, t.began = i, t.app.now()
	if t.quiet {
		return
	}
	for _, line := range header(i) {
		t.log("%s", line)
	}
	if !t.screen.HasBar() {
		t.log("lines     every %s: loss, speed and MFU are means since the line before", words.Plural(t.logEvery, "step"))
	}
}

// header describes a run in a few lines.
func header(i troupe.Info) []string {
	lines := dataLines(i)
	if i.Chunks > 1 { // else there is no pipeline to describe
		lines = append(lines, fmt.Sprintf("pipeline  schedule %s: %s, %s, %s, ideal bubble %.1f%%", i.Schedule, words.Plural(i.Stages, "stage"),
			words.Plural(i.Chunks, "chunk"), words.Plural(i.Microbatches, "microbatch"), i.BubblePct),
			fmt.Sprintf("layout    %s", i.Layout))
	}
	if i.Grid != "" {
		lines = append(lines, "grid      "+i.Grid)
	}
	lines = append(lines, "device    "+deviceLine(i), fmt.Sprintf("output    %s", i.Out))
	if i.ResumedAt > 0 {
		lines = append(lines, fmt.Sprintf("resumed at step %d", i.ResumedAt))
		if i.Changed != "" {
			lines = append(lines, "changed since its last start: "+i.Changed)
		}
	}
	return lines
}

// dataLines describes the model and its data.
func dataLines(i troupe.Info) []string {
	sets := func(lines []string) []string {
		if i.EvalSets == "" {
			return lines
		}
		return append(lines, "sets      "+words.OneLine(i.EvalSets))
	}
	if !i.Samples {
		lines := []string{fmt.Sprintf("model     %s, %s, vocabulary of %s", i.Family, parametersOf(i), words.Count(int64(i.Vocab)))}
		if i.Documents != nil {
			lines = append(lines, documentLines(i)...)
		} else if i.EvalWindows == 0 && i.EvalSets != "" {
			lines = append(lines, fmt.Sprintf("data      %s tokens for training", words.Count(i.TrainTokens)))
		} else {
			lines = append(lines, fmt.Sprintf("data      %s tokens for training, %s for validation (%s)", words.Count(i.TrainTokens),
				words.Count(i.ValTokens), words.Plural(i.EvalWindows, "window")))
		}
		lines = append(sets(lines), packingLines(i)...)
		if i.Sources != "" {
			for _, source := range strings.Split(i.Sources, "; ") {
				lines = append(lines, "source    "+words.OneLine(source))
			}
		}
		if i.EpochWindows > 0 { // else the data is a stream
			lines = append(lines, fmt.Sprintf("epochs    %s in total; one epoch is %s windows (%s steps)", few(i.Epochs),
				words.Count(i.EpochWindows),
				few(i.EpochSteps)))
		}
		if i.Text != "" {
			lines = append(lines, "text      "+words.OneLine(i.Text))
		}
		return lines
	}
	lines := []string{fmt.Sprintf("model     %s, %s", i.Family, parametersOf(i))}
	if i.EpochWindows == 0 { // the data is a stream
		return append(lines, fmt.Sprintf("data      a stream of samples for training, %s for validation", words.Count(int64(i.EvalWindows))))
	}
	val := fmt.Sprintf("%s for validation", words.Count(i.ValTokens))
	if int64(i.EvalWindows) < i.ValTokens {
		val += fmt.Sprintf(" (%s of them in each validation)", words.Count(int64(i.EvalWindows)))
	}
	lines = append(lines, fmt.Sprintf("data      %s samples for training, %s", words.Count(i.TrainTokens), val))
	lines = sets(lines)
	if i.Classes != "" {
		lines = append(lines, "labels    "+words.OneLine(i.Classes))
	}
	return append(lines,
		fmt.Sprintf("epochs    %s in total; one epoch is %s steps", few(i.Epochs), few(i.EpochSteps)))
}

// parametersOf says how many parameters there are, and how many of them are trained.
func parametersOf(i troupe.Info) string {
	if i.Frozen == 0 {
		return words.Count(i.Parameters) + " parameters"
	}
	return fmt.Sprintf("%s parameters, %s of them trained", words.Count(i.Parameters), words.Count(i.Parameters-i.Frozen))
}

// few formats a number with three digits, or more if it has more before the decimal point.
func few(x float64) string {
	if x >= 1000 {
		return words.Count(int64(math.Round(x)))
	}
	return fmt.Sprintf("%.3g", x)
}

func (t *textReporter) event(e troupe.Event) {
	if s, ok := e.(troupe.StepEvent); ok {
		t.step(s)
		return
	}
	switch m, ok := event.MarkOf(e, 0); {
	case !ok, slices.Contains(t.app.told, m.Text):
	case m.Warns():
		t.warn("%s", m.Text)
	default:
		t.log("%s", m.Text)
	}
	if s, ok := e.(troupe.StallEvent); ok {
		t.notice(s.Status.Table())
	}
}

// log writes a line, unless --quiet is set.
func (t *textReporter) log(format string, args ...any) {
	if !t.quiet {
		t.line(format, args...)
	}
}

// line writes exactly one line, even if names in it contain line breaks.
func (t *textReporter) line(format string, args ...any) {
	t.screen.Line(words.OneLine(fmt.Sprintf(format, args...)))
}

func (t *textReporter) warn(format string, args ...any) {
	t.screen.Notice("engine: warning: " + indented(fmt.Sprintf(format, args...)))
}

// indented makes each line of a text harmless and indents all lines after the first.
func indented(text string) string {
	all := strings.Split(text, "\n")
	for i := range all {
		all[i] = words.OneLine(all[i])
	}
	return strings.Join(all, "\n  ")
}

func (t *textReporter) step(e troupe.StepEvent) {
	t.measure(e.Record)
	if t.quiet {
		return
	}
	due := e.Step%t.logEvery == 0 || e.Step == t.info.Steps
	if e.ValLoss != nil || due && !t.screen.HasBar() {
		t.log("%s", t.stepLine(e))
		t.since = since{}
	}
	if now := t.app.now(); e.ValLoss != nil || now.Sub(t.drawn) >= redrawEvery {
		t.drawn = now
		t.screen.Draw(t.bar(e))
	}
}

// measure counts a step.
func (t *textReporter) measure(r telemetry.Record) {
	if r.ValLoss != nil {
		t.valLoss, t.valMetrics, t.valLosses = r.ValLoss, r.ValMetrics, r.ValLosses
	}
	if r.StepMS != nil && r.TokensPerS != nil {
		took := time.Duration(*r.StepMS * float64(time.Millisecond))
		t.meter.Add(took, int64(math.Round(*r.TokensPerS*took.Seconds())))
	}
	t.since.add(r)
	if !r.Skipped {
		t.inRow = 0
		return
	}
	t.skipped++
	if t.inRow++; t.inRow == 1 || t.inRow%t.logEvery == 0 {
		t.warn("step %d was skipped, the weights are unchanged: %s", r.Step, skipReason(r, t.inRow))
	}
}

// skipReason names the values that are not finite.
func skipReason(r telemetry.Record, inRow int) string {
	var parts []string
	if r.Loss != nil {
		parts = append(parts, fmt.Sprintf("loss %.4g", *r.Loss))
	}
	if r.GradNorm != nil {
		parts = append(parts, fmt.Sprintf("gradient norm %.4g", *r.GradNorm))
	}
	if inRow > 1 {
		parts = append(parts, fmt.Sprintf("%d in a row", inRow))
	}
	return strings.Join(parts, ", ")
}

// stepLine formats a step as a line, with the means since the line before.
func (t *textReporter) stepLine(e troupe.StepEvent) string {
	columns := lineColumns
	if t.app.width != nil {
		columns = t.app.width() - 1
	}
	elapsed, left := t.app.now().Sub(t.began), t.meter.Remaining(t.info.Steps-e.Step)
	head := lineField{0, fmt.Sprintf("step %*d/%d", len(fmt.Sprint(t.info.Steps)), e.Step, t.info.Steps)}
	return fitting(append([]lineField{head}, t.fields(t.since.over(e), elapsed, left)...), columns)
}

// bar formats the progress at a step. Speed and remaining time are smoothed, and the last validation loss
// stays.
func (t *textReporter) bar(e troupe.StepEvent) term.Bar {
	e.ValLoss, e.ValMetrics, e.ValLosses = t.valLoss, t.valMetrics, t.valLosses
	if speed := t.meter.TokensPerS(); speed > 0 {
		e.TokensPerS = &speed
	}
	b := term.Bar{Done: e.Step, Total: t.info.Steps, Fields: losses(e)}
	if left := t.meter.Remaining(t.info.Steps - e.Step); left > 0 {
		b.Fields = append(b.Fields, words.Duration(left)+" left")
	}
	e.Loss, e.MTPLoss, e.ValLoss, e.Metrics, e.ValMetrics, e.ValLosses, e.Skipped = nil, nil, nil, nil, nil, nil, false
	for _, f := range t.fields(e, 0, 0) {
		b.Fields = append(b.Fields, f.text)
	}
	return b
}

// deviceLine names the device of a run, and why device.kind = "auto" chose it.
func deviceLine(i troupe.Info) string {
	line := computesOn(i)
	if i.Auto != "" {
		line += "; " + words.OneLine(i.Auto)
	}
	return line
}

func computesOn(i troupe.Info) string {
	switch on := strings.Split(i.Device, ", "); {
	case i.Device == "cpu":
		return fmt.Sprintf("cpu, %s, kernels %s", words.Plural(i.Threads, "thread"), i.Kernels)
	case !slices.Contains(on, "cpu"):
		return fmt.Sprintf("%s, kernels %s", i.Device, i.Kernels)
	}
	return fmt.Sprintf("%s, %s of the CPU", i.Kernels, words.Plural(i.Threads, "thread"))
}

func (t *textReporter) notice(text string) { t.screen.Notice(strings.TrimRight(text, "\n")) }

func (t *textReporter) close() { t.screen.Clear() }

func (t *textReporter) end(res troupe.Result) {
	t.line("%s", strings.Join(t.closing(res), "; "))
	if !res.Stopped && res.Step > 0 {
		t.log("%s", nextCommands(t.info))
	}
}

// closing returns the parts of a run's last line.
func (t *textReporter) closing(res troupe.Result) []string {
	end, _ := event.MarkOf(troupe.EndEvent{Result: res}, res.Step)
	parts := []string{end.Text}
	switch idle := res.Step == t.info.ResumedAt; {
	case res.Stopped:
	case idle && res.Early:
		parts = append(parts, "nothing is left to train; raise run.patience to continue")
	case idle:
		parts = append(parts, "nothing is left to train; raise run.steps to continue")
	default:
		parts[0] += " in " + words.Duration(t.app.now().Sub(t.began))
	}
	switch {
	case t.valLoss == nil && math.IsNaN(res.LastValLoss): // no validation
	case math.IsNaN(res.FirstValLoss):
		parts = append(parts, fmt.Sprintf("validation loss %.4f", res.LastValLoss))
	case res.LastValLoss == res.FirstValLoss:
		parts = append(parts, fmt.Sprintf("validation loss before training %.4f", res.FirstValLoss))
	default:
		loss := fmt.Sprintf("validation loss %.4f → %.4f", res.FirstValLoss, res.LastValLoss)
		if res.BestStep > 0 && res.BestValLoss != res.LastValLoss {
			loss += fmt.Sprintf(" (best %.4f at step %d)", res.BestValLoss, res.BestStep)
		}
		if res.LastValLoss > res.FirstValLoss {
			loss += ", above that before training"
		}
		parts = append(parts, loss)
	}
	if u := res.Updates; u != (troupe.Updates{}) {
		speculated := max(1, u.Kept+u.RolledBack)
		parts = append(parts, fmt.Sprintf("updates: %d kept, %d rolled back (%.1f%%), %d waited", u.Kept, u.RolledBack,
			100*float64(u.RolledBack)/float64(speculated), u.Waited))
	}
	if t.skipped > 0 {
		parts = append(parts, words.Plural(t.skipped, "step")+" skipped")
	}
	if res.Dir != "" {
		parts = append(parts, "checkpoint "+res.Dir)
	}
	if res.Stopped {
		parts = append(parts, "the same command resumes from there")
	}
	return parts
}

func (t *textReporter) sample(ctx context.Context, o troupe.GenerateOptions) error {
	t.screen.Line(fmt.Sprintf("\nsample (%s, temperature %g):", words.Plural(o.Tokens, "token"), o.Temperature))
	o.Warn = func(text string) { t.warn("%s", text) }
	if err := generate(ctx, o, t.app.programs()); err != nil {
		return err
	}
	t.screen.Line("")
	return nil
}
