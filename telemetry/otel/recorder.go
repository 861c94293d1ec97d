package otel

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry"
)

// Options configure a Recorder.
type Options struct {
	Run    string               // the run's name, an attribute of all spans and metrics
	Tracer trace.TracerProvider // nil: no spans
	Meter  metric.MeterProvider // nil: no metrics
	// ResumedAt is the step that the run resumes from; 0: a fresh start.
	ResumedAt int
	// StageOf returns the stage of a rank; nil: each rank is a stage.
	StageOf func(rank int) int
	Now     func() time.Time // nil: time.Now
}

// Recorder reports one run. It is for one goroutine. Its methods block only if the providers' processors do; the
// SDK's batch processors do not.
type Recorder struct {
	o       Options
	tracer  trace.Tracer
	meters  *instruments
	run     trace.Span // the whole run
	restart trace.Span // from a restart to the next step; nil: no restart is open
	paused  trace.Span
	tokens  int64 // tokens of the steps up to the last one
	step    int   // the last step
	counts  bool  // tokens is known
}

// New returns a Recorder and starts the span of the run.
func New(o Options) (*Recorder, error) {
	if o.Tracer == nil {
		o.Tracer = tracenoop.NewTracerProvider()
	}
	if o.Meter == nil {
		o.Meter = metricnoop.NewMeterProvider()
	}
	if o.StageOf == nil {
		o.StageOf = func(rank int) int { return rank }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	meters, err := newInstruments(o.Meter.Meter(scope), keyRun.String(o.Run))
	if err != nil {
		return nil, fmt.Errorf("OpenTelemetry: create the instruments: %w", err)
	}
	r := &Recorder{o: o, tracer: o.Tracer.Tracer(scope), meters: meters, step: o.ResumedAt, counts: o.ResumedAt == 0}
	r.run = r.begin("run", o.Now())
	return r, nil
}

// begin starts a span without a parent.
func (r *Recorder) begin(name string, at time.Time, attributes ...attribute.KeyValue) trace.Span {
	_, span := r.tracer.Start(context.Background(), name, trace.WithNewRoot(), trace.WithTimestamp(at),
		trace.WithAttributes(keyRun.String(r.o.Run)), trace.WithAttributes(attributes...))
	return span
}

func end(span trace.Span, at time.Time) { span.End(trace.WithTimestamp(at)) }

// Observe reports an event of the run.
func (r *Recorder) Observe(e troupe.Event) {
	now := r.o.Now()
	m, _ := event.MarkOf(e, 0)
	switch e := e.(type) {
	case troupe.StepEvent:
		r.observeStep(e, now)
	case troupe.CheckpointEvent:
		end(r.begin("checkpoint", now.Add(-e.Took), keyStep.Int64(e.Step), keyFolder.String(e.Dir), keyBest.Bool(e.Best),
			keyWeights.Bool(e.Weights)), now)
		if !e.Weights { // the run does not resume from it
			r.meters.checkpoint(e)
		}
	case troupe.RestartEvent:
		r.endRestart(now)
		r.restart = r.begin("restart", now, keyRestart.Int(e.Restart), keyMost.Int(e.Most))
		r.restart.RecordError(e.Err, trace.WithTimestamp(now))
		r.meters.restart()
	case troupe.ReplaceEvent:
		span := r.begin("replace", now.Add(-e.Loaded), keyStep.Int64(e.Step))
		span.RecordError(e.Err, trace.WithTimestamp(now.Add(-e.Loaded)))
		end(span, now)
		r.meters.replacement()
	case troupe.RegroupEvent:
		r.run.AddEvent("regroup", trace.WithTimestamp(now), trace.WithAttributes(attribute.String("message", m.Text)))
	case troupe.StallEvent:
		span := r.begin("stall", now.Add(-e.Quiet), keyWaits.StringSlice(e.Status.Chain()))
		span.SetStatus(codes.Error, m.Text)
		end(span, now)
		r.meters.stall()
	case troupe.PauseEvent:
		r.endPause(now)
		if e.Paused {
			r.paused = r.begin("paused", now, keyStep.Int64(e.Step))
		}
	case troupe.WarningEvent:
		r.run.AddEvent("warning", trace.WithTimestamp(now), trace.WithAttributes(attribute.String("message", m.Text)))
	}
}

func (r *Recorder) endRestart(at time.Time) {
	if r.restart != nil {
		end(r.restart, at)
		r.restart = nil
	}
}

func (r *Recorder) endPause(at time.Time) {
	if r.paused != nil {
		end(r.paused, at)
		r.paused = nil
	}
}

// observeStep reports a step.
func (r *Recorder) observeStep(e troupe.StepEvent, now time.Time) {
	from, until := extent(e, now)
	r.endRestart(from)
	attributes := []attribute.KeyValue{keyStep.Int(e.Step)}
	for _, name := range []string{"loss", "grad_norm", "lr", "bubble_pct"} {
		attributes = append(attributes, figure(name, &e.Record)...)
	}
	if e.BubblePct != nil {
		attributes = append(attributes, keyIdeal.Float64(e.IdealBubblePct/100))
	}
	if e.Tokens > 0 {
		attributes = append(attributes, keyTokens.Int64(e.Tokens))
	}
	if e.Skipped {
		attributes = append(attributes, keySkipped.Bool(true))
	}
	name := "step"
	if e.Step == 0 {
		name = "validation" // before training
	}
	span := r.begin(name, from, attributes...)
	if e.ValLoss != nil {
		span.AddEvent("validation", trace.WithTimestamp(until), trace.WithAttributes(figure("val_loss", &e.Record)...))
	}
	r.actions(trace.ContextWithSpan(context.Background(), span), e)
	end(span, until)
	steps, tokens := r.trained(e)
	r.meters.step(e, steps, tokens)
}

// figure returns the attribute of a figure that was measured.
func figure(name string, r *telemetry.Record) []attribute.KeyValue {
	f := telemetry.FigureOf(name)
	v := f.Get(r)
	if v == nil {
		return nil
	}
	return []attribute.KeyValue{attribute.Float64("engine."+f.Metric, f.Scaled(*v))}
}

// extent returns the start and the end of a step: from its actions if it was recorded, else the event came at its
// end.
func extent(e troupe.StepEvent, now time.Time) (from, until time.Time) {
	took := time.Duration(0)
	if e.StepMS != nil && *e.StepMS > 0 && *e.StepMS < 1e12 {
		took = time.Duration(*e.StepMS * float64(time.Millisecond))
	}
	var last time.Time
	for _, row := range e.Trace {
		for _, a := range row {
			if from.IsZero() || a.Start.Before(from) {
				from = a.Start
			}
			if a.End.After(last) {
				last = a.End
			}
		}
	}
	if from.IsZero() {
		return now.Add(-took), now
	}
	if until = from.Add(took); until.Before(last) {
		until = last
	}
	return from, until
}

// actions reports the actions of a recorded step.
func (r *Recorder) actions(parent context.Context, e troupe.StepEvent) {
	for rank, row := range e.Trace {
		where := []attribute.KeyValue{keyRun.String(r.o.Run), keyStep.Int(e.Step), keyRank.Int(rank), keyStage.Int(r.o.StageOf(rank))}
		if rank < len(e.Clocks) && e.Clocks[rank].Process != "" {
			c := e.Clocks[rank]
			where = append(where, keyHost.String(c.Process), keyWithin.Float64(float64(c.Within)/float64(time.Millisecond)))
		}
		for _, a := range row {
			r.action(parent, a, where)
		}
	}
}

func (r *Recorder) action(parent context.Context, a event.ActionTime, where []attribute.KeyValue) {
	name, ok := passes[a.Action.Type]
	if !ok {
		name = strings.ToLower(a.Action.Type.String())
	}
	what := func(of scheduler.Action) trace.SpanStartOption {
		return trace.WithAttributes(slices.Concat(where, []attribute.KeyValue{keyChunk.Int64(int64(of.Chunk)),
			keyMicrobatch.Int64(int64(of.Microbatch)), keyAction.String(of.String())})...)
	}
	within, span := r.tracer.Start(parent, name, trace.WithTimestamp(a.Start), what(a.Action))
	for i, p := range a.Parts {
		if p.Exchange == 0 {
			continue
		}
		of := a.Action
		of.Type, of.Part = p.Exchange, uint16(i+1)
		_, exchange := r.tracer.Start(within, exchanges[p.Exchange], trace.WithTimestamp(p.Sent), what(of))
		end(exchange, p.Came)
	}
	end(span, a.End)
}

// trained returns the steps and tokens since the last event. Steps whose events were dropped count with the next one.
func (r *Recorder) trained(e troupe.StepEvent) (steps, tokens int64) {
	if e.Step == 0 {
		return 0, 0
	}
	steps = 1
	switch {
	case e.Step > r.step && r.counts && e.Tokens > r.tokens:
		steps, tokens = int64(e.Step-r.step), e.Tokens-r.tokens
	case e.TokensPerS != nil && e.StepMS != nil && *e.TokensPerS >= 0 && *e.StepMS >= 0 && *e.TokensPerS**e.StepMS < 1e15:
		tokens = int64(math.Round(*e.TokensPerS * *e.StepMS / 1e3))
	}
	r.step, r.tokens, r.counts = e.Step, e.Tokens, true
	return steps, tokens
}

// End reports the result of the run.
func (r *Recorder) End(result troupe.Result, err error) {
	now := r.o.Now()
	r.endRestart(now)
	r.endPause(now)
	r.run.SetAttributes(keyStep.Int(result.Step))
	if err != nil {
		r.run.RecordError(err, trace.WithTimestamp(now))
		first, _, _ := strings.Cut(err.Error(), "\n")
		r.run.SetStatus(codes.Error, first)
	}
	end(r.run, now)
}
