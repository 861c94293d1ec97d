package otel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"github.com/troupe-ml/troupe/telemetry/event"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func p(v float64) *float64 { return &v }

var began = time.Unix(1_790_000_000, 0)

func at(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

// told is a Recorder with what it tells.
type told struct {
	*Recorder
	spans  *tracetest.InMemoryExporter
	reader *sdkmetric.ManualReader
	now    time.Time
}

func newTold(t *testing.T, o Options) *told {
	t.Helper()
	all := &told{spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader(), now: at(1000)}
	o.Tracer, o.Meter = sdktrace.NewTracerProvider(sdktrace.WithSyncer(all.spans)),
		sdkmetric.NewMeterProvider(sdkmetric.WithReader(all.reader))
	o.Run, o.Now = "tiny", func() time.Time { return all.now }
	var err error
	if all.Recorder, err = New(o); err != nil {
		t.Fatal(err)
	}
	return all
}

// named are the spans of a name.
func (a *told) named(name string) (found []tracetest.SpanStub) {
	for _, s := range a.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

func attributesOf(all []attribute.KeyValue) map[string]string {
	m := make(map[string]string)
	for _, kv := range all {
		m[string(kv.Key)] = kv.Value.String()
	}
	return m
}

// metrics are the last values: of a histogram the count.
func (a *told) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := a.reader.Collect(context.Background(), &data); err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					all[m.Name+nameOf(p.Attributes)] = p.Value
				}
			case metricdata.Gauge[int64]:
				all[m.Name] = float64(d.DataPoints[0].Value)
			case metricdata.Sum[int64]:
				all[m.Name] = float64(d.DataPoints[0].Value)
			case metricdata.Histogram[float64]:
				all[m.Name] = float64(d.DataPoints[0].Count)
			}
		}
	}
	return all
}

func nameOf(set attribute.Set) string {
	if v, ok := set.Value(keyName); ok {
		return "/" + v.AsString()
	}
	return ""
}

func step(n int) troupe.StepEvent {
	return troupe.StepEvent{Record: telemetry.Record{Step: n, Loss: p(3.5), GradNorm: p(1), LR: p(1e-3), Tokens: int64(100 * n),
		TokensPerS: p(400), StepMS: p(250), BubblePct: p(50)}, IdealBubblePct: 40}
}

// TestStep: a step is the root of a trace, by its duration; recorded, its actions are children with
// their own times, of all hosts.
func TestStep(t *testing.T) {
	a := newTold(t, Options{StageOf: func(rank int) int { return rank / 2 }})
	plain := step(1)
	plain.ValLoss, plain.Skipped = p(4), true
	a.Observe(plain)
	recorded := step(2)
	recorded.Trace = [][]event.ActionTime{
		{{Action: scheduler.Action{Chunk: 0, Type: scheduler.F, Microbatch: 3}, Start: at(100), End: at(150)},
			{Action: scheduler.Action{Type: scheduler.B}, Start: at(200), End: at(290), Parts: []scheduler.PartTime{
				{Start: at(200), End: at(220), Exchange: scheduler.BD, Sent: at(210), Came: at(230)}, {Start: at(240), End: at(290)}}}},
		nil,
		{{Action: scheduler.Action{Chunk: 1, Type: scheduler.I, Microbatch: 1}, Start: at(160), End: at(170)},
			{Action: scheduler.Action{Chunk: 1, Type: scheduler.W, Microbatch: 1}, Start: at(170), End: at(400)}},
	}
	recorded.Clocks = []event.Clock{{}, {}, {Process: "w1", Within: 2 * time.Millisecond}}
	a.Observe(recorded)

	steps := a.named("step")
	if len(steps) != 2 {
		t.Fatalf("%d steps", len(steps))
	}
	one, two := steps[0], steps[1]
	if one.Parent.IsValid() || two.Parent.IsValid() || one.SpanContext.TraceID() == two.SpanContext.TraceID() {
		t.Error("a step is no trace of its own")
	}
	if !one.StartTime.Equal(at(750)) || !one.EndTime.Equal(at(1000)) {
		t.Errorf("step 1 is from %v to %v", one.StartTime, one.EndTime)
	}
	if !two.StartTime.Equal(at(100)) || !two.EndTime.Equal(at(400)) { // its last action is behind its duration
		t.Errorf("step 2 is from %v to %v", two.StartTime, two.EndTime)
	}
	want := map[string]string{"engine.run": "tiny", "engine.step": "1", "engine.loss": "3.5", "engine.gradient_norm": "1",
		"engine.learning_rate": "0.001", "engine.bubble_ratio": "0.5",
		"engine.bubble_ideal_ratio": "0.4", "engine.tokens": "100", "engine.skipped": "true"}
	if got := attributesOf(one.Attributes); !maps.Equal(got, want) {
		t.Errorf("step 1 has %v, want %v", got, want)
	}
	if len(one.Events) != 1 || one.Events[0].Name != "validation" || attributesOf(one.Events[0].Attributes)["engine.validation_loss"] != "4" {
		t.Errorf("its events are %v", one.Events)
	}

	var got []string
	for _, s := range a.spans.GetSpans() {
		if !s.Parent.IsValid() {
			continue
		}
		if of := a.named("backward")[0]; s.Name == "dispatch" && s.Parent.SpanID() != of.SpanContext.SpanID() {
			t.Errorf("%s is no child of its action", s.Name)
		}
		if s.Name != "dispatch" && s.Parent.SpanID() != two.SpanContext.SpanID() || s.SpanContext.TraceID() != two.SpanContext.TraceID() {
			t.Errorf("%s is no child of its step", s.Name)
		}
		m := attributesOf(s.Attributes)
		got = append(got, fmt.Sprint(s.Name, " ", m["engine.action"], " ", m["engine.rank"], " ", m["engine.stage"], " ", m["engine.chunk"], " ",
			m["engine.microbatch"], " ", m["host.name"], " ",
			s.StartTime.Sub(began).Milliseconds(), " ", s.EndTime.Sub(began).Milliseconds()))
	}
	if want := []string{"forward 0F3 0 0 0 3  100 150", "dispatch 0BD0.1 0 0 0 0  210 230", "backward 0B0 0 0 0 0  200 290",
		"input_gradient 1I1 2 1 1 1 w1 160 170", "weight_gradient 1W1 2 1 1 1 w1 170 400"}; !slices.Equal(got, want) {
		t.Errorf("the actions are\n%q, want\n%q", got, want)
	}
}

// TestOthers: what is no step is a span of its own.
func TestOthers(t *testing.T) {
	a := newTold(t, Options{})
	first := step(0)
	first.Loss, first.StepMS, first.ValLoss = nil, nil, p(5)
	a.Observe(first)
	if s := a.named("validation"); len(s) != 1 || len(s[0].Events) != 1 {
		t.Errorf("before training: %v", s)
	}
	a.Observe(troupe.CheckpointEvent{Step: 3, Dir: "d", Best: true, Took: 300 * time.Millisecond})
	if s := a.named("checkpoint"); len(s) != 1 || !s[0].StartTime.Equal(at(700)) ||
		attributesOf(s[0].Attributes)["engine.checkpoint.best"] != "true" {
		t.Errorf("the checkpoint: %v", s)
	}
	a.Observe(troupe.StallEvent{Quiet: time.Second})
	if s := a.named("stall"); len(s) != 1 || s[0].Status.Code != codes.Error || !s[0].StartTime.Equal(at(0)) {
		t.Errorf("the stall: %v", s)
	}
	a.Observe(troupe.PauseEvent{Step: 3, Paused: true})
	a.now = at(2000)
	a.Observe(troupe.PauseEvent{Step: 3})
	if s := a.named("paused"); len(s) != 1 || !s[0].EndTime.Equal(at(2000)) {
		t.Errorf("the pause: %v", s)
	}
	a.Observe(troupe.RestartEvent{Err: errors.New("w1 failed"), Restart: 1, Most: 10})
	a.now = at(5000)
	if len(a.named("restart")) != 0 {
		t.Error("the restart is over before a step")
	}
	a.Observe(step(3))
	if s := a.named("restart"); len(s) != 1 || !s[0].StartTime.Equal(at(2000)) || !s[0].EndTime.Equal(at(4750)) || len(s[0].Events) != 1 {
		t.Errorf("the restart: %v", s)
	}
	a.Observe(troupe.WarningEvent{Text: "look"})
	a.Observe(troupe.RestartEvent{Err: errors.New("w2 failed")})
	a.Observe(troupe.PauseEvent{Paused: true})
	a.End(troupe.Result{Step: 3}, errors.New("it failed\nhere"))
	s := a.named("run")
	if len(s) != 1 || s[0].Status.Code != codes.Error || s[0].Status.Description != "it failed" || !s[0].StartTime.Equal(at(1000)) ||
		len(s[0].Events) != 2 {
		t.Errorf("the run: %v", s)
	}
	if len(a.named("restart")) != 2 || len(a.named("paused")) != 2 {
		t.Error("a span is open behind the run's end")
	}
}

// TestMetrics: counters count what was trained here, whatever events were lost.
func TestMetrics(t *testing.T) {
	a := newTold(t, Options{ResumedAt: 10})
	a.Observe(step(11)) // of 100 tokens by its pace
	more := step(14)
	more.Metrics, more.ValMetrics, more.ValLoss = map[string]float64{"accuracy": 0.5}, map[string]float64{"accuracy": 0.25}, p(2)
	more.PeakMemBytes, more.MTPLoss, more.PeakPct = 1<<20, p(6), p(50)
	a.Observe(more)
	skipped := step(12) // gone back
	skipped.Skipped = true
	a.Observe(skipped)
	a.Observe(troupe.CheckpointEvent{Took: time.Second})
	a.Observe(troupe.StallEvent{})
	a.Observe(troupe.RestartEvent{Err: errors.New("gone")})
	a.Observe(troupe.ReplaceEvent{Err: errors.New("gone"), Loaded: time.Second})
	got := a.metrics(t)
	for name, want := range map[string]float64{"engine.steps": 5, "engine.tokens": 500, "engine.step": 12, "engine.steps_skipped": 1,
		"engine.checkpoints": 1, "engine.restarts": 1, "engine.replacements": 1, "engine.stalls": 1,
		"engine.loss": 3.5, "engine.mtp_loss": 6, "engine.validation_loss": 2, "engine.gradient_norm": 1, "engine.learning_rate": 1e-3,
		"engine.tokens_per_second": 400, "engine.bubble_ratio": 0.5,
		"engine.bubble_ideal_ratio": 0.4, "engine.peak_ratio": 0.5, "engine.metric/accuracy": 0.5, "engine.validation_metric/accuracy": 0.25,
		"engine.memory.peak": 1 << 20, "engine.step.duration": 3, "engine.checkpoint.duration": 1} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (told: %v), want %v", name, v, ok, want)
		}
	}
}

// TestNobody: without providers nothing is told, and nothing fails.
func TestNobody(t *testing.T) {
	r, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.Observe(step(1))
	r.End(troupe.Result{}, nil)
}
