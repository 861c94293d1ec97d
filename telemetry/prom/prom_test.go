package prom

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/troupe-ml/troupe/telemetry/event"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/health"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func p(v float64) *float64 { return &v }

// source stands for a run.
type source struct {
	info   troupe.Info
	status troupe.Status
	memory []int64
}

func (s source) Info() troupe.Info     { return s.info }
func (s source) Status() troupe.Status { return s.status }
func (s source) RankMemory() []int64   { return s.memory }

// figures are what a scrape finds: name{label="value",…} → value.
func figures(t testing.TB, c *Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			all[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = valueOf(m)
		}
	}
	return all
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	}
	return float64(m.Histogram.GetSampleCount())
}

func want(t *testing.T, c *Collector, values map[string]float64) {
	t.Helper()
	got := figures(t, c)
	for name, v := range values {
		if g, ok := got[name]; !ok || g != v && !(math.IsNaN(g) && math.IsNaN(v)) {
			t.Errorf("%s is %v (told: %v), want %v", name, g, ok, v)
		}
	}
}

func add(t testing.TB, c *Collector, name string, s source) *Run {
	t.Helper()
	r, err := c.Add(name, s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func step(n int, tokens int64) troupe.StepEvent {
	return troupe.StepEvent{Record: telemetry.Record{Step: n, Loss: p(3.5), GradNorm: p(1.5), LR: p(1e-3), Tokens: tokens, TokensPerS: p(2000),
		StepMS: p(500), BubblePct: p(25), PeakMemBytes: 1 << 20},
		IdealBubblePct: 20}
}

// TestCounts: a counter counts what this process has trained, whatever events were lost and
// wherever the run has gone back to.
func TestCounts(t *testing.T) {
	c := NewCollector()
	r := add(t, c, "a", source{})
	first := step(0, 0)
	first.ValLoss = p(5)
	r.Observe(first)
	r.Observe(step(1, 1000))
	r.Observe(step(4, 4000)) // two were not told
	skipped := step(5, 5000)
	skipped.Skipped = true
	r.Observe(skipped)
	r.Observe(troupe.CheckpointEvent{Step: 3, Took: 2 * time.Second})
	r.Observe(troupe.RestartEvent{Err: errors.New("gone")})
	r.Observe(troupe.ReplaceEvent{Err: errors.New("gone")})
	r.Observe(step(4, 4000)) // again
	r.Observe(step(5, 5000))
	r.Observe(troupe.StallEvent{})
	r.Observe(troupe.WarningEvent{Text: "w"})
	r.Observe(troupe.PauseEvent{Step: 5, Paused: true})
	want(t, c, map[string]float64{
		`engine_steps_total{run="a"}`: 7, `engine_tokens_total{run="a"}`: 7000, `engine_steps_skipped_total{run="a"}`: 1,
		`engine_restarts_total{run="a"}`: 1, `engine_replacements_total{run="a"}`: 1,
		`engine_stalls_total{run="a"}`: 1, `engine_warnings_total{run="a"}`: 1, `engine_checkpoints_total{run="a"}`: 1,
		`engine_last_checkpoint_step{run="a"}`: 3,
		`engine_step{run="a"}`:                 5, `engine_paused{run="a"}`: 1, `engine_run_state{run="a",state="paused"}`: 1,
		`engine_validation_loss{run="a"}`: 5,
		`engine_bubble_ratio{run="a"}`:    0.25, `engine_bubble_ideal_ratio{run="a"}`: 0.2, `engine_memory_peak_bytes{run="a"}`: 1 << 20,
		`engine_step_duration_seconds{run="a"}`: 5, `engine_checkpoint_duration_seconds{run="a"}`: 1,
	})

	// A run that goes on from step 100 has trained nothing yet; of tokens the first event tells the pace.
	r = add(t, c, "b", source{info: troupe.Info{ResumedAt: 100}})
	r.Observe(step(101, 101_000))
	r.Observe(step(102, 102_000))
	want(t, c, map[string]float64{`engine_steps_total{run="b"}`: 2, `engine_tokens_total{run="b"}`: 2000})
}

// TestRanks: what ranks do, on which host, and for whom they wait.
func TestRanks(t *testing.T) {
	now := time.Now()
	c := NewCollector()
	s := source{memory: []int64{100, 200, 0}, status: troupe.Status{Time: now, Actors: []event.Snapshot{
		{Actor: "scheduler", Rank: -1, Wait: event.WaitStages, From: "stage 1", Since: now},
		{Actor: "stage 0", Rank: 0, Doing: event.Running, Since: now},
		{Actor: "stage 1", Rank: 1, Doing: event.Waiting, Wait: event.WaitActivation, From: "stage 0", Since: now.Add(-2 * time.Second),
			Host: "w1"},
		{Actor: "stage 2", Rank: 2, Doing: event.Idle, Wait: event.WaitGroup, From: "nobody knows", Since: now.Add(time.Second)},
		{Actor: "stage 3", Rank: 3, Doing: event.Doing(200), Wait: event.Wait(200), From: "scheduler", Since: now.Add(-time.Second)},
		{Actor: "stage 9999", Rank: limitRanks, Doing: event.Running, Since: now},
	}}}
	r := add(t, c, "a", s)
	e := step(1, 1000)
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	e.Trace = [][]event.ActionTime{
		{{Start: at(0), End: at(50)}, {Start: at(0), End: at(50)}, {Start: at(50), End: at(100)}}, // a pair has one time
		{{Start: at(50), End: at(75)}},
		nil,
	}
	r.Observe(e)
	want(t, c, map[string]float64{
		`engine_rank_state{rank="0",run="a",state="running"}`: 1, `engine_rank_state{rank="1",run="a",state="waiting"}`: 1,
		`engine_rank_state{rank="3",run="a",state="other"}`:                       1,
		`engine_rank_wait_seconds{for="activation",from="0",rank="1",run="a"}`:    2,
		`engine_rank_wait_seconds{for="group",from="other",rank="2",run="a"}`:     0,
		`engine_rank_wait_seconds{for="other",from="scheduler",rank="3",run="a"}`: 1,
		`engine_rank_info{host="w1",name="stage 1",rank="1",run="a"}`:             1, `engine_rank_memory_bytes{rank="1",run="a"}`: 200,
		`engine_rank_bubble_ratio{rank="0",run="a"}`: 0, `engine_rank_bubble_ratio{rank="1",run="a"}`: 0.75,
		`engine_rank_bubble_ratio{rank="2",run="a"}`: 1,
	})
	for name := range figures(t, c) {
		if strings.Contains(name, `rank="4096"`) {
			t.Errorf("%s is told, behind the limit", name)
		}
	}
}

// TestBounds: names are cut, figures of a model's own bounded, and runs that have ended leave.
func TestBounds(t *testing.T) {
	c := NewCollector()
	r := add(t, c, "a", source{info: troupe.Info{Kernels: strings.Repeat("k", 1000) + "\xff"}})
	e := step(1, 1)
	e.Metrics, e.ValLoss, e.ValMetrics = map[string]float64{"\xff\xfe": 1, strings.Repeat("x", 500): 2, strings.Repeat("x", 400): 3}, p(1),
		map[string]float64{"accuracy": 0.5}
	for i := range 200 {
		e.Metrics[fmt.Sprintf("m%03d", i)] = float64(i)
	}
	r.Observe(e)
	n := 0
	for name := range figures(t, c) {
		if strings.HasPrefix(name, "engine_metric{") {
			n++
		}
	}
	if n != limitMetrics {
		t.Errorf("%d figures of the model's own are told", n)
	}
	want(t, c, map[string]float64{`engine_validation_metric{name="accuracy",run="a"}`: 0.5, `engine_metric{name="m000",run="a"}`: 0})

	if _, err := c.Add("a", source{}); !errors.Is(err, ErrName) {
		t.Errorf("a second run of one name: %v", err)
	}
	r.End(troupe.Result{}, nil)
	r.End(troupe.Result{}, nil)
	want(t, c, map[string]float64{`engine_run_state{run="a",state="done"}`: 1, `engine_loss{run="a"}`: 3.5})
	for i := range limitEnded {
		name := fmt.Sprintf("r%d", i)
		add(t, c, name, source{}).End(troupe.Result{Stopped: i == 0}, map[bool]error{true: errors.New("bad")}[i == 1])
	}
	want(t, c, map[string]float64{`engine_run_state{run="r0",state="stopped"}`: 1, `engine_run_state{run="r1",state="failed"}`: 1})
	for name := range figures(t, c) {
		if strings.Contains(name, `run="a"`) {
			t.Errorf("%s is told still", name)
		}
	}
	again := add(t, c, "r0", source{}) // it goes on
	want(t, c, map[string]float64{`engine_run_state{run="r0",state="running"}`: 1})
	again.End(troupe.Result{}, nil)
	for i := range limitRuns {
		add(t, c, fmt.Sprintf("going %d", i), source{})
	}
	if _, err := c.Add("one more", source{}); !errors.Is(err, ErrRuns) {
		t.Errorf("one run more than may go on: %v", err)
	}
}

// full is a run with every figure.
func full(t testing.TB) *Collector {
	c := NewCollector()
	now := time.Now()
	r := add(t, c, "a run", source{info: troupe.Info{ID: "01", Family: "gpt2", Schedule: "1f1b", Device: "cpu", Kernels: "avx2", Stages: 2,
		Ranks: 2, Steps: 10, Parameters: 100},
		memory: []int64{1}, status: troupe.Status{Time: now, Actors: []event.Snapshot{{Actor: "stage 0", Rank: 0, Wait: event.WaitOrder,
			From: "scheduler", Since: now}}}})
	e := step(1, 1)
	for i := range telemetry.Figures {
		telemetry.Figures[i].Set(&e.Record, p(40))
	}
	e.Metrics, e.ValMetrics = map[string]float64{"accuracy": 1}, map[string]float64{"accuracy": 1}
	e.ValLosses = map[string]float64{"legal": 2}
	e.Trace = [][]event.ActionTime{{{Action: scheduler.Action{Type: scheduler.F}, Start: now, End: now.Add(time.Second)}}}
	r.Observe(e)
	r.Observe(troupe.CheckpointEvent{Step: 1, Took: time.Second})
	return c
}

// TestLint: Prometheus's own rules for names and texts find nothing, and every kind that is
// described is told.
func TestLint(t *testing.T) {
	c := full(t)
	server := httptest.NewServer(c.Handler())
	defer server.Close()
	text := get(t, server.Client(), server.URL, "")
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, d := range descs {
		name, _, _ := strings.Cut(strings.TrimPrefix(d.String(), `Desc{fqName: "`), `"`)
		if !strings.Contains(text, "\n"+name+"{") {
			t.Errorf("%s is not told of", name)
		}
	}
}

func get(t testing.TB, client *http.Client, url, host string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if req.Host = host; host == "" {
		req.Host = req.URL.Host
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // it is only read
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		return res.Status
	}
	return string(body)
}

// TestServe: on loopback names that anybody may have are refused, and so are other addresses
// unless they are asked for.
func TestServe(t *testing.T) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0"} {
		if s, err := Serve(address, false, NewCollector()); !errors.Is(err, ErrExposed) {
			t.Errorf("%s: %v", address, err)
			s.Close()
		}
	}
	if _, err := Serve("127.0.0.1", true, NewCollector()); err == nil {
		t.Error("an address without a port is served")
	}
	s, err := Serve("127.0.0.1:0", false, full(t))
	if err != nil {
		t.Fatal(err)
	}
	for host, answer := range map[string]string{"": "engine_loss", "localhost:1": "engine_loss", "[::1]:9464": "engine_loss",
		"10.0.0.1": "engine_loss", "prometheus-target": "engine_loss",
		"host.docker.internal:9464": "engine_loss", "a.localhost": "engine_loss", "evil.example": "403", "evil.example:9464": "403",
		"internal.evil.example.": "403"} {
		if got := get(t, client, s.URL(), host); !strings.Contains(got, answer) {
			t.Errorf("asked as %q it answers %.80q", host, got)
		}
	}
	base := strings.TrimSuffix(s.URL(), Path)
	if got := get(t, client, base+"/", ""); !strings.Contains(got, Path) || strings.Contains(got, health.LivePath) {
		t.Errorf("/ answers %.80q", got)
	}
	for _, path := range []string{"/debug/pprof/", "/metrics/x", health.LivePath} {
		if got := get(t, client, base+path, ""); got != "404 Not Found" {
			t.Errorf("%s: %.80q", path, got)
		}
	}
	res, err := client.Post(s.URL(), "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _ = res.Body.Close(); res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a POST: %s", res.Status)
	}
	s.Close()

	open, err := Serve("0.0.0.0:0", true, full(t))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	_, port, _ := net.SplitHostPort(open.at.String())
	if got := get(t, client, "http://127.0.0.1:"+port+Path, "node7.cluster.example"); !strings.Contains(got, "engine_loss") {
		t.Errorf("a scrape from elsewhere: %.80q", got)
	}
}

// TestSlowScrapers: those who ask and never read hold neither the run nor Close up.
func TestSlowScrapers(t *testing.T) {
	c := NewCollector()
	r := add(t, c, "a", source{})
	s, err := Serve("127.0.0.1:0", false, c)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * limitConnections {
		conn, err := net.Dial("tcp", s.at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() //nolint:errcheck // it is never used again
		if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10_000 {
		r.Observe(step(i, int64(i)))
	}
	s.Close()
	want(t, c, map[string]float64{`engine_step{run="a"}`: 9999})
}

// TestRaces: events, scrapes, and runs that come and go at the same time.
func TestRaces(t *testing.T) {
	c := NewCollector()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 20 {
				r := add(t, c, fmt.Sprintf("%d", i), source{})
				for s := range 20 {
					r.Observe(step(s, int64(s)))
				}
				r.End(troupe.Result{Step: n}, nil)
			}
		})
		all.Go(func() {
			for range 20 {
				figures(t, c)
			}
		})
	}
	all.Wait()
}
