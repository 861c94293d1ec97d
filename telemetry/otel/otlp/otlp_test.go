package otlp

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// none is an environment without variables.
func none(string) (string, bool) { return "", false }

func environment(vars map[string]string) Environment {
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}

// collector takes what is sent.
type collector struct {
	mu      sync.Mutex
	spans   []string
	metrics []string
	service string
	secrets []string
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(r.Body)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secrets = append(c.secrets, r.Header.Get("Authorization"))
	switch r.URL.Path {
	case "/base/v1/traces":
		var m collectortrace.ExportTraceServiceRequest
		if err := proto.Unmarshal(data, &m); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, r := range m.ResourceSpans {
			for _, a := range r.Resource.Attributes {
				if a.Key == "service.name" {
					c.service = a.Value.GetStringValue()
				}
			}
			for _, s := range r.ScopeSpans {
				for _, span := range s.Spans {
					c.spans = append(c.spans, span.Name)
				}
			}
		}
	case "/base/v1/metrics":
		var m collectormetrics.ExportMetricsServiceRequest
		if err := proto.Unmarshal(data, &m); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, r := range m.ResourceMetrics {
			for _, s := range r.ScopeMetrics {
				for _, one := range s.Metrics {
					c.metrics = append(c.metrics, one.Name)
				}
			}
		}
	default:
		http.NotFound(w, r)
	}
}

// warnings are what was warned of.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) add(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func open(t *testing.T, endpoint string, w *warnings) *Providers {
	t.Helper()
	p, err := Open(context.Background(), Options{Endpoint: endpoint, Environment: none,
		Attributes: []attribute.KeyValue{attribute.String("service.name", "engine")}, Warn: w.add})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func span(p *Providers, name string) {
	_, s := p.Tracer().Tracer("test").Start(context.Background(), name, trace.WithNewRoot())
	s.End()
}

// TestSends: what waits is sent by Close, beneath the base.
func TestSends(t *testing.T) {
	var c collector
	server := httptest.NewServer(&c)
	defer server.Close()
	var w warnings
	p := open(t, server.URL+"/base/", &w)
	for i := range 3 {
		span(p, fmt.Sprint("s", i))
	}
	gauge, err := p.Meter().Meter("test").Float64Gauge("g")
	if err != nil {
		t.Fatal(err)
	}
	gauge.Record(context.Background(), 1)
	p.Close()
	if len(c.spans) != 3 || c.service != "engine" || len(c.metrics) != 1 || c.metrics[0] != "g" || len(w.all) != 0 {
		t.Errorf("spans %v of %q, metrics %v, warnings %q", c.spans, c.service, c.metrics, w.all)
	}
}

// TestEnvironment: what the environment says of the service and the protocol.
func TestEnvironment(t *testing.T) {
	t.Setenv("OTEL_SERVICE_NAME", "mine")
	var c collector
	server := httptest.NewServer(&c)
	defer server.Close()
	var w warnings
	p, err := Open(context.Background(), Options{Endpoint: server.URL + "/base",
		Environment: environment(map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_METRICS_EXPORTER": "none"}),
		Attributes:  []attribute.KeyValue{attribute.String("service.name", "engine")}, Warn: w.add})
	if err != nil {
		t.Fatal(err)
	}
	span(p, "s")
	p.Close()
	if c.service != "mine" || len(w.all) != 1 || !strings.Contains(w.all[0], "http/protobuf") {
		t.Errorf("the service is %q, the warnings are %q", c.service, w.all)
	}
}

// TestNoSecrets: an endpoint that is somebody else's gets none of the environment's headers.
func TestNoSecrets(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer secret")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=Bearer secret")
	t.Setenv("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "authorization=Bearer secret")
	for _, foreign := range []bool{false, true} {
		var c collector
		server := httptest.NewServer(&c)
		p, err := Open(context.Background(), Options{Endpoint: server.URL + "/base", Environment: none, NoSecrets: foreign,
			Warn: new(warnings).add})
		if err != nil {
			t.Fatal(err)
		}
		span(p, "s")
		p.Close()
		server.Close()
		for _, got := range c.secrets {
			if (got == "Bearer secret") == foreign {
				t.Errorf("foreign %v: the header is %q", foreign, got)
			}
		}
		if len(c.secrets) == 0 {
			t.Errorf("foreign %v: nothing came", foreign)
		}
	}
}

// TestAway: a collector that is away, and one that takes a connection and never answers, hold nobody
// up; what was lost is counted, and warned of once.
func TestAway(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() //nolint:errcheck // nothing was written
	for name, endpoint := range map[string]string{"away": "http://127.0.0.1:1", "silent": "http://" + silent.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			var w warnings
			p := open(t, endpoint, &w)
			p.ending = time.Second
			const n = limitSpans + 4*limitBatch // more than may wait
			began := time.Now()
			for range n {
				span(p, "s")
			}
			if took := time.Since(began); took > 20*time.Second { // not a measurement: it would wait for as long as the collector does
				t.Errorf("ending %d spans took %v", n, took)
			}
			began = time.Now()
			p.Close()
			if took := time.Since(began); took > 3*closeTime {
				t.Errorf("Close took %v", took)
			}
			if lost := p.count.lost(); lost != n {
				t.Errorf("%d of %d spans are lost", lost, n)
			}
			all := strings.Join(w.all, "\n")
			if len(w.all) > 3 || strings.Count(all, fmt.Sprintf("%d of %d spans did not reach %s", n, n, endpoint)) != 1 || name == "silent" &&
				!strings.Contains(all, "further spans are dropped") {
				t.Errorf("the warnings are\n%s", all)
			}
		})
	}
}

func TestWants(t *testing.T) {
	for _, tc := range []struct {
		endpoint        string
		env             map[string]string
		traces, metrics bool
	}{
		{"", nil, false, false},
		{"http://x", nil, true, true},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, true, true},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, false, false},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, true, false},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, false, true},
		{"http://x", map[string]string{"OTEL_TRACES_EXPORTER": "none"}, false, true},
		{"http://x", map[string]string{"OTEL_METRICS_EXPORTER": "none"}, true, false},
		{"http://x", map[string]string{"OTEL_SDK_DISABLED": "TRUE"}, false, false},
	} {
		traces, metrics := wants(tc.endpoint, environment(tc.env))
		if traces != tc.traces || metrics != tc.metrics || Wanted(tc.endpoint, environment(tc.env)) != (tc.traces || tc.metrics) {
			t.Errorf("%+v: %v, %v", tc, traces, metrics)
		}
	}
}

// Without a signal its provider is none: a nil interface, which package otel takes for none.
func TestOneSignal(t *testing.T) {
	p, err := Open(context.Background(), Options{Endpoint: "http://127.0.0.1:1",
		Environment: environment(map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"})})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Tracer() != nil || p.Meter() != nil {
		t.Error("there are providers")
	}
	if _, err := Open(context.Background(), Options{Endpoint: "collector:4318", Environment: none}); !errors.Is(err, ErrEndpoint) {
		t.Errorf("no URL: %v", err)
	}
}
