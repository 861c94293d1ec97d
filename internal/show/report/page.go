package report

import (
	"bytes"

	"github.com/troupe-ml/troupe/internal/run/trainstate"

	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/show/chart"
	"github.com/troupe-ml/troupe/internal/show/draw"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
)

// The page and its style.

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageStyle string

// partsHTML defines what the page of a run and that of several runs have in common.
//
//go:embed parts.html
var partsHTML string

var pageTemplate = templateOf(pageHTML)

func templateOf(html string) *template.Template {
	return template.Must(template.Must(template.New("report").Parse(partsHTML)).Parse(html))
}

// Mark is the HTML near the beginning of a page that identifies it as a report.
const Mark = `<meta name="generator" content="engine report">`

// noScript is the content security policy of a page without a pipeline.
const noScript = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

// page has the values of the template, which escapes them.
type page struct {
	Title, Status string
	Style         template.CSS
	Tiles         []tile
	Wrong         []string
	Events        []event
	EventsSay     string
	Charts        []template.HTML
	CurvesSay     string
	Layers        []layerRow
	LayersSay     string
	Policy        string // content security policy
	Pipeline      template.HTML
	Script        template.HTML // draws the pipeline
	PipelineSay   string
	Ranks         []rankRow
	About         []tile
	Samples       []telemetry.Sample
	SamplesSay    string
	Config        string
	Notes         []string

	run   *Run
	marks []telemetry.Mark
	stats []telemetry.Stats
	step  *scheduler.Step // the last traced step; nil: none can be drawn
}

type tile struct{ Label, Value, More string }

type event struct{ Step, Time, Kind, Text string }

type rankRow struct {
	Name, Busy, Idle string
	Peak             int
}

// Page writes a run as one HTML page, which needs no other file and no network. A script draws its pipeline; browsers
// without scripts show a picture.
func Page(w io.Writer, r *Run) error {
	p := &page{run: r, Policy: noScript, Title: clean(r.Name()), Notes: slices.Clone(r.Notes)}
	p.Style = template.CSS(chart.Style + draw.InlineStyle + pageStyle)
	all := p.readRecorded()
	p.readTrace()
	p.sum()
	p.tellWrong()
	p.tellEvents()
	if err := errors.Join(p.drawCurves(), p.drawLayers()); err != nil {
		return err
	}
	p.drawPipeline()
	p.tellAbout()
	p.tellSamples(all)
	if r.Config != nil {
		p.Config = string(r.Config.TOML())
	}
	for i, note := range p.Notes {
		p.Notes[i] = clean(note)
	}
	var out bytes.Buffer // writes nothing if the template fails
	if err := pageTemplate.Execute(&out, p); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err := out.WriteTo(w)
	return err
}

// clean replaces control characters and characters that change the direction of text.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// readRecorded reads the events, stats and samples of a run up to Run.UpTo.
func (p *page) readRecorded() (samples []telemetry.Sample) {
	if p.run.dir == "" {
		return nil
	}
	fsys, err := folder.Open(p.run.dir)
	if err != nil {
		p.Notes = append(p.Notes, err.Error())
		return nil
	}
	defer func() { _ = fsys.Close() }() // nothing was written
	var errs [3]error
	p.marks, errs[0] = telemetry.ReadMarksFrom(fsys, rundir.EventsFile)
	p.stats, errs[1] = telemetry.ReadStatsFrom(fsys, rundir.StatsFile)
	samples, errs[2] = telemetry.ReadSamplesFrom(fsys, rundir.SamplesFile)
	for _, err := range errs {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			p.Notes = append(p.Notes, err.Error())
		}
	}
	p.marks = upTo(p.run, p.marks, func(m telemetry.Mark) int { return m.Step })
	p.stats = upTo(p.run, p.stats, func(s telemetry.Stats) int { return s.Step })
	return upTo(p.run, samples, func(s telemetry.Sample) int { return s.Step })
}

// upTo leaves out values after Run.UpTo.
func upTo[T any](r *Run, all []T, step func(T) int) []T {
	if r.UpTo < 0 {
		return all
	}
	return slices.DeleteFunc(all, func(v T) bool { return step(v) > r.UpTo })
}

// unit returns "tokens", or "samples" if the run's data is not text.
func (p *page) unit() string {
	if p.run.Config != nil && !p.run.Config.Text() {
		return "samples"
	}
	return "tokens"
}

// sum fills the tiles.
func (p *page) sum() {
	r := p.run
	step, of := r.Step(), ""
	if r.Config != nil {
		of = " of " + words.Count(int64(r.Config.Run.Steps))
	}
	p.Status = fmt.Sprintf("%s, at step %s%s", clean(r.Path), words.Count(int64(step)), of)
	if r.UpTo >= 0 {
		p.Status += " (the state of this checkpoint)"
	}
	if !r.Written.IsZero() {
		p.Status += "; last metrics at " + r.Written.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	add := func(label, value, more string) {
		if value != "" {
			p.Tiles = append(p.Tiles, tile{label, value, more})
		}
	}
	add("Step", words.Count(int64(step)), strings.TrimPrefix(of, " "))
	for _, name := range []string{"loss", "val_loss"} {
		if f := figureOf(r, name); len(f.steps) > 0 {
			n := len(f.steps) - 1
			add(telemetry.FigureOf(name).Title, decimal(f.values[n]), "at step "+words.Count(int64(f.steps[n])))
		}
	}
	if best, at := least(figureOf(r, "val_loss")); at >= 0 {
		add("Best validation loss", decimal(best), "at step "+words.Count(int64(at)))
	}
	if n, at := trainedOn(r); n > 0 {
		add(strings.ToUpper(p.unit()[:1])+p.unit()[1:]+" of training", words.Short(float64(n)), "up to step "+words.Count(int64(at)))
	}
	if took := timeOf(r); took > 0 {
		add("Time of all steps", words.Duration(took), "")
	}
	for i := range telemetry.Figures {
		f := &telemetry.Figures[i]
		v, more := typical(f.Name, figureOf(r, f.Name).values), "median"
		if f.Unit == telemetry.Bytes {
			more = "of the process"
		}
		if f.Machine && !math.IsNaN(v) {
			add(f.Title, p.show(f, v), more)
		}
	}
}

// show formats a value with its unit.
func (p *page) show(f *telemetry.Figure, v float64) string {
	switch f.Unit {
	case telemetry.TokensPerSecond:
		return words.Short(v) + " " + p.unit() + "/s"
	case telemetry.Bytes:
		return words.Bytes(int64(v))
	case telemetry.Percent:
		return fmt.Sprintf("%.1f %%", v)
	}
	return strings.TrimSpace(fmt.Sprintf("%.4g %s", v, f.Unit))
}

// trainedOn returns the number of training tokens or samples, and the step up to which it is known.
func trainedOn(r *Run) (n int64, step int) {
	if r.History != nil && r.UpTo < 0 {
		if last, ok := r.History.Last(); ok && last.Tokens > 0 {
			return last.Tokens, last.Step
		}
	}
	if r.State != nil {
		return r.State.Tokens, int(r.State.Step)
	}
	return 0, 0
}

// timeOf returns the time of all steps.
func timeOf(r *Run) time.Duration {
	total := 0.0
	for _, ms := range figureOf(r, "step_ms").values {
		if ms > 0 {
			total += ms
		}
	}
	return time.Duration(min(total*1e6, math.MaxInt64/2))
}

// least returns the minimum of a metric and the first step that has it; -1: no values.
func least(f figure) (v float64, step int) {
	v, step = math.NaN(), -1
	for i, x := range f.values {
		if !math.IsNaN(x) && (step < 0 || x < v) {
			v, step = x, f.steps[i]
		}
	}
	return v, step
}

// decimal formats a loss.
func decimal(v float64) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.Abs(v) >= 1e-3 && math.Abs(v) < 1e6:
		return fmt.Sprintf("%.4f", v)
	}
	return fmt.Sprintf("%.4g", v)
}

// tellWrong lists problems of the run.
func (p *page) tellWrong() {
	say := func(format string, args ...any) { p.Wrong = append(p.Wrong, clean(fmt.Sprintf(format, args...))) }
	r := p.run
	if r.History != nil {
		skipped := upTo(r, r.History.Skipped(), func(step int) int { return step })
		if n := len(skipped); n > 0 {
			say("%s skipped without an update: %s.", were(n, "step"), some(skipped))
		}
		for _, name := range r.History.Names() {
			f := figureOf(r, name)
			var gone []int
			for i, v := range f.values {
				if math.IsNaN(v) {
					gone = append(gone, f.steps[i])
				}
			}
			if len(gone) > 0 {
				say("%s is NaN or infinite at %s: %s.", name, words.Plural(len(gone), "step"), some(gone))
			}
		}
	}
	for _, kind := range []struct{ kind, one, more string }{
		{telemetry.MarkRestart, "The run restarted once", "The run restarted %d times"},
		{telemetry.MarkReplace, "A failed worker was replaced once", "Failed workers were replaced %d times"},
		{telemetry.MarkStall, "The run stalled once", "The run stalled %d times"},
		{telemetry.MarkWarning, "There was a warning", "There were %d warnings"},
	} {
		var at []int
		for _, m := range p.marks {
			if m.Kind == kind.kind {
				at = append(at, m.Step)
			}
		}
		switch n := len(at); {
		case n == 1:
			say("%s, at step %s.", kind.one, some(at))
		case n > 1:
			say(kind.more+", at steps %s.", n, some(at))
		}
	}
	if n := len(p.marks); n > 0 && p.marks[n-1].Kind == telemetry.MarkEnd {
		if cause, failed := p.marks[n-1].Failure(); failed {
			say("The run failed: %s", cause)
		} else {
			p.Status += "; " + clean(p.marks[n-1].Text)
		}
	}
	if r.State != nil {
		for _, d := range r.State.Decisions {
			what := "a user resumed the run with other data"
			if d.Kind == trainstate.FromStep {
				what = "a user resumed the run from an older step"
			}
			say("At step %s, %s: %s.", words.Count(d.Step), what, d.Detail)
		}
	}
	p.tellAside()
}

// tellAside lists the backups of damaged and replaced data.
func (p *page) tellAside() {
	if p.run.dir == "" || p.run.UpTo >= 0 {
		return
	}
	fsys, err := folder.Open(p.run.dir)
	if err != nil {
		return // readRecorded reports it
	}
	defer func() { _ = fsys.Close() }() // nothing was written
	var names []string
	for _, dir := range []string{".", "checkpoints"} {
		entries, err := fsys.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if strings.Contains(e.Name(), ".damaged") || strings.Contains(e.Name(), ".superseded") {
				names = append(names, e.Name())
			}
		}
	}
	if len(names) > 0 {
		p.Wrong = append(p.Wrong, clean(fmt.Sprintf("Backups of damaged or replaced data: %s.",
			strings.Join(names[:min(len(names), 10)], ", ")))+moreThan(len(names), 10))
	}
}

func moreThan(n, shown int) string {
	if n <= shown {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", n-shown)
}

func were(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " was"
	}
	return words.Plural(n, noun) + " were"
}

// some lists the first steps.
func some(steps []int) string {
	const shown = 8
	var text []string
	for _, step := range steps[:min(len(steps), shown)] {
		text = append(text, words.Count(int64(step)))
	}
	return strings.Join(text, ", ") + moreThan(len(steps), shown)
}

// tellEvents lists the events, except checkpoints and samples.
func (p *page) tellEvents() {
	var shown []telemetry.Mark
	for _, m := range p.marks {
		if m.Kind != telemetry.MarkCheckpoint && m.Kind != telemetry.MarkSample {
			shown = append(shown, m)
		}
	}
	n := len(shown)
	p.EventsSay = words.Plural(n, "event")
	if n > limitEvents {
		shown = shown[n-limitEvents:]
		p.EventsSay = fmt.Sprintf("the last %d of %d events", limitEvents, n)
	}
	for _, m := range shown {
		e := event{Step: words.Count(int64(m.Step)), Kind: clean(m.Kind), Text: clean(m.Text)}
		if m.TimeMS > 0 {
			e.Time = time.UnixMilli(m.TimeMS).UTC().Format(time.DateTime)
		}
		p.Events = append(p.Events, e)
	}
}

// tellAbout describes the run.
func (p *page) tellAbout() {
	add := func(label, format string, args ...any) {
		p.About = append(p.About, tile{Label: label, Value: clean(fmt.Sprintf(format, args...))})
	}
	r := p.run
	if c := r.Config; c != nil {
		m := c.Model
		model := m.Family
		if c.Language() {
			model += fmt.Sprintf(": %s of width %s, %s, context %s", words.Plural(m.Layers, "layer"), words.Count(int64(m.Hidden)),
				words.Plural(m.Heads, "head"), words.Count(int64(m.Context)))
		}
		if r.Parameters > 0 {
			model += fmt.Sprintf("; %s parameters", words.Count(r.Parameters))
		}
		if m.From != "" {
			model += "; from " + m.From
		}
		add("Model", "%s", model)
		text := c.Data.Format
		if c.Text() {
			text += ", tokenizer " + c.Data.Tokenizer
		}
		add("Data", "%s; %s", text, strings.Join(c.Data.Train, ", "))
	}
	if s := r.State; s != nil && s.Data.Train.SHA256 != "" {
		add("Training data", "%s; %s %s", identity(s.Data.Train), words.Count(s.TrainTokens), p.unit())
		if s.Data.Val != nil {
			add("Validation data", "%s", identity(*s.Data.Val))
		}
	}
	if c := r.Config; c != nil {
		add("Batch", "%s in microbatches of %d", words.Plural(c.Batch.Sequences, "sequence"), c.Batch.Microbatch)
		o := c.Optimizer
		add("Optimizer", "%s, learning rate: peak %.4g, floor %.4g, %s warm-up steps, decay %s; clip norm %g", o.Name, o.LR, o.MinLR,
			words.Count(int64(o.WarmupSteps)), o.Decay, o.ClipNorm)
		pipe := fmt.Sprintf("schedule %s, %s with %s each, %s", c.Pipeline.Schedule, words.Plural(c.Pipeline.Stages, "stage"),
			words.Plural(c.Pipeline.Chunks, "chunk"),
			words.Plural(c.Batch.Sequences/max(c.Batch.Microbatch, 1), "microbatch"))
		if c.Pipeline.Layout != "" {
			pipe += ", layout " + c.Pipeline.Layout
		}
		add("Pipeline", "%s", pipe)
		if g := c.Parallel; slices.Max(append([]int{1}, g.Tensor...)) > 1 || g.Context > 1 || g.Data > 1 {
			add("Grid", "tensor %v, context %d, data %d, ZeRO %d", g.Tensor, g.Context, g.Data, g.Zero)
		}
		device := c.Device.Kind
		if len(c.Device.Ranks) > 0 {
			device = strings.Join(c.Device.Ranks, ", ")
		}
		add("Device", "%s, number type %s", device, c.Device.DType)
	}
	if s := r.State; s != nil {
		add("Kernels", "%s", s.Kernels)
		add("Checkpoint", "%s, step %s, run %s", r.Checkpoint, words.Count(s.Step), s.Run)
	}
	for _, m := range slices.Backward(p.marks) {
		if by := m.Text; m.Kind == telemetry.MarkStart && by != "" {
			add("Started by", "%s", by)
			break
		} else if _, by, ok := strings.Cut(by, "; "); m.Kind == telemetry.MarkResume && ok {
			add("Last resumed by", "%s", by)
			break
		}
	}
	if len(p.About) == 0 {
		add("Nothing", "the folder has no readable configuration or checkpoint")
	}
}

// tellSamples shows the last samples.
func (p *page) tellSamples(all []telemetry.Sample) {
	n := len(all)
	if n == 0 {
		return
	}
	p.SamplesSay = "The texts that the model wrote at validations, newest first. The prompt is underlined."
	if n > limitSamples {
		p.SamplesSay = fmt.Sprintf("The newest %d of %d samples, newest first. The prompt is underlined.", limitSamples, n)
		all = all[n-limitSamples:]
	}
	for _, s := range slices.Backward(all) {
		if strings.TrimSpace(s.Text) == "" {
			s.Text = " (only white space)"
		}
		p.Samples = append(p.Samples, telemetry.Sample{Step: s.Step, Prompt: clean(squeezed(cut(s.Prompt))), Text: clean(squeezed(cut(s.Text)))})
	}
}

// squeezed shortens each run of line breaks, which a model that has learned nothing writes, to an empty line.
func squeezed(text string) string { return lineBreaks.ReplaceAllString(text, "\n\n") }

var lineBreaks = regexp.MustCompile(`\n\s*\n\s*\n`)

// cut shortens a text to limitSampleBytes.
func cut(text string) string {
	if len(text) <= limitSampleBytes {
		return text
	}
	return strings.ToValidUTF8(text[:limitSampleBytes], "") + "…"
}

// readTrace reads the last traced step up to Run.UpTo.
func (p *page) readTrace() {
	say := func(text string) { p.PipelineSay = text }
	say("The run has no traced steps. Set run.trace_every to record some.")
	if p.run.dir == "" {
		return
	}
	path := filepath.Join(p.run.dir, rundir.TraceFile)
	t, steps, err := telemetry.ReadTrace(path, -1)
	if err == nil && p.run.UpTo >= 0 && t.Step > p.run.UpTo {
		if steps = upTo(p.run, steps, func(step int) int { return step }); len(steps) == 0 {
			say("The run has no traced step before this checkpoint.")
			return
		}
		t, _, err = telemetry.ReadTrace(path, slices.Max(steps))
	}
	switch {
	case err == nil:
		if p.step, err = t.Measured(path); err != nil {
			p.cantDraw(t.Step, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		say("The traced steps cannot be read.")
		p.Notes = append(p.Notes, err.Error())
	}
}

func (p *page) cantDraw(step int, err error) {
	p.PipelineSay = fmt.Sprintf("Step %s was traced but cannot be drawn.", words.Count(int64(step)))
	p.Notes = append(p.Notes, err.Error())
}

// drawPipeline draws the traced step.
func (p *page) drawPipeline() {
	if p.step == nil {
		return
	}
	planned, measured, err := draw.FromStep(p.step)
	if err != nil {
		p.cantDraw(p.step.Number, err)
		return
	}
	f := measured.Figures()
	p.PipelineSay = fmt.Sprintf("Step %s, the last traced step: %.4g ms with a bubble of %.1f %%.",
		words.Count(int64(p.step.Number)), f.Makespan, 100*f.BubbleFraction)
	if f.Exchange > 0 {
		p.PipelineSay += fmt.Sprintf(" Tokens traveled to their experts and back for %.4g ms a rank, %.1f %% of it while the rank "+
			"computed.", f.Exchange/float64(len(measured.Lanes)), 100*f.Hidden/f.Exchange)
	}
	ms := func(v float64) string { return fmt.Sprintf("%.4g", v) }
	for r, lane := range measured.Lanes {
		p.Ranks = append(p.Ranks, rankRow{clean(lane.Name), ms(f.Busy[r]), ms(f.Idle[r]), f.PeakInFlight[r]})
	}
	drawing, err := draw.Inline(planned, measured)
	if errors.Is(err, draw.ErrTooLarge) {
		p.PipelineSay += " It has too many actions for this page; use engine trace --format perfetto."
		return
	}
	if err != nil {
		p.cantDraw(p.step.Number, err)
		return
	}
	p.Pipeline, p.Script, p.Policy = drawing, draw.InlineScript, draw.InlinePolicy
}
