package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"testing"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

// collector is an OpenTelemetry collector's receiver of OTLP over HTTP, with what it has got.
type collector struct {
	endpoint string
	traces   *consumertest.TracesSink
	metrics  *consumertest.MetricsSink
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	factory := otlpreceiver.NewFactory()
	cfg := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Protocols.GRPC = configoptional.None[configgrpc.ServerConfig]()
	cfg.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr.Endpoint = address
	c := &collector{endpoint: "http://" + address, traces: new(consumertest.TracesSink), metrics: new(consumertest.MetricsSink)}
	settings := receivertest.NewNopSettings(factory.Type())
	traces, err := factory.CreateTraces(context.Background(), settings, cfg, c.traces)
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := factory.CreateMetrics(context.Background(), settings, cfg, c.metrics) // of the same server
	if err != nil {
		t.Fatal(err)
	}
	host := componenttest.NewNopHost()
	if err := errors.Join(traces.Start(context.Background(), host), metrics.Start(context.Background(), host)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(traces.Shutdown(context.Background()), metrics.Shutdown(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return c
}

// span is one with what it is of.
type span struct {
	ptrace.Span
	resource map[string]any
}

func (s span) get(key string) string {
	v, ok := s.Attributes().Get(key)
	if !ok {
		return ""
	}
	return v.AsString()
}

// spans are those that have come, by name.
func (c *collector) spans() map[string][]span {
	all := make(map[string][]span)
	for _, traces := range c.traces.AllTraces() {
		for _, r := range traces.ResourceSpans().All() {
			for _, scope := range r.ScopeSpans().All() {
				for _, s := range scope.Spans().All() {
					all[s.Name()] = append(all[s.Name()], span{s, r.Resource().Attributes().AsRaw()})
				}
			}
		}
	}
	return all
}

// TestCollector: a real collector gets the spans of a run over two processes of this machine, and
// its metrics.
func TestCollector(t *testing.T) {
	c := startCollector(t)
	dir := folder(t)
	engine(t, dir, "run", "tiny.toml", "--local-cluster", "2", "--set", "telemetry.otlp="+c.endpoint)
	spans := c.spans()
	count := func(name string) int { return len(spans[name]) }
	// 8 steps, of which 4 are recorded: 2 microbatches through each of 2 stages.
	if count("step") != 8 || count("validation") != 1 || count("checkpoint") < 2 || count("run") != 1 {
		t.Fatalf("steps %d, validations %d, checkpoints %d, runs %d", count("step"), count("validation"), count("checkpoint"), count("run"))
	}
	if count("forward") != 4*2*2 || count("backward") != 4*2*2 {
		t.Errorf("%d forwards and %d backwards of 4 recorded steps", count("forward"), count("backward"))
	}
	steps, numbers := make(map[pcommon.SpanID]span), make(map[string]bool)
	traces := make(map[pcommon.TraceID]bool)
	for _, s := range spans["step"] {
		if !s.ParentSpanID().IsEmpty() || traces[s.TraceID()] {
			t.Errorf("step %s is no root of a trace of its own", s.get("engine.step"))
		}
		steps[s.SpanID()], numbers[s.get("engine.step")], traces[s.TraceID()] = s, true, true
		if s.get("engine.loss") == "" || s.EndTimestamp() <= s.StartTimestamp() {
			t.Errorf("step %s has no loss, or no time", s.get("engine.step"))
		}
	}
	if len(numbers) != 8 {
		t.Errorf("the steps are %v", slices.Sorted(maps.Keys(numbers)))
	}
	hosts, seen := make(map[string]bool), make(map[string]bool)
	for _, s := range slices.Concat(spans["forward"], spans["backward"]) {
		parent, ok := steps[s.ParentSpanID()]
		if !ok || parent.TraceID() != s.TraceID() || parent.get("engine.step") != s.get("engine.step") {
			t.Errorf("%s of step %s has no parent", s.get("engine.action"), s.get("engine.step"))
			continue
		}
		if s.StartTimestamp() < parent.StartTimestamp() || s.EndTimestamp() > parent.EndTimestamp() || s.EndTimestamp() < s.StartTimestamp() {
			t.Errorf("%s of step %s is not within its step", s.get("engine.action"), s.get("engine.step"))
		}
		hosts[s.get("host.name")] = true
		seen[fmt.Sprint(s.get("engine.step"), " ", s.get("engine.rank"), " ", s.get("engine.stage"), " ", s.get("engine.action"))] = true
		if s.get("engine.rank") != s.get("engine.chunk") || s.get("engine.microbatch") == "" {
			t.Errorf("%s is on rank %s and of chunk %s", s.get("engine.action"), s.get("engine.rank"), s.get("engine.chunk"))
		}
	}
	if len(hosts) != 2 || hosts[""] {
		t.Errorf("the actions ran on %v, want two workers", slices.Sorted(maps.Keys(hosts)))
	}
	for _, action := range []string{"2 0 0 0F0", "2 0 0 0F1", "2 1 1 1F0", "8 1 1 1B1", "8 0 0 0B1"} {
		if !seen[action] {
			t.Errorf("%q (step, rank, stage, action) is missing", action)
		}
	}
	r := spans["run"][0].resource
	if r["service.name"] != "engine" || r["engine.run"] != "tiny" || len(fmt.Sprint(r["engine.run.id"])) != 36 ||
		r["engine.ranks"] != int64(2) {
		t.Errorf("the resource is %v", r)
	}

	names := make(map[string]bool)
	for _, m := range c.metrics.AllMetrics() {
		for _, r := range m.ResourceMetrics().All() {
			for _, scope := range r.ScopeMetrics().All() {
				for _, one := range scope.Metrics().All() {
					names[one.Name()] = true
					if one.Name() == "engine.steps" && one.Sum().DataPoints().At(0).IntValue() != 8 {
						t.Errorf("engine.steps is %d", one.Sum().DataPoints().At(0).IntValue())
					}
				}
			}
		}
	}
	for _, name := range []string{"engine.loss", "engine.validation_loss", "engine.steps", "engine.tokens", "engine.step.duration",
		"engine.checkpoints", "engine.bubble_ratio"} {
		if !names[name] {
			t.Errorf("the metric %s has not come; there are %v", name, slices.Sorted(maps.Keys(names)))
		}
	}
}
