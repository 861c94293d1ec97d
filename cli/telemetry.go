package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/attribute"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/telemetry/health"
	"github.com/troupe-ml/troupe/telemetry/otel"
	"github.com/troupe-ml/troupe/telemetry/otel/otlp"
	"github.com/troupe-ml/troupe/telemetry/prom"
	"github.com/troupe-ml/troupe/telemetry/tensorboard"
)

const (
	// limitNotes is the most warnings of exports that wait to be shown. Further ones are dropped.
	limitNotes = 64
	// otlpEndpoint is the environment variable that names the default collector.
	otlpEndpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	// exportsTime is how long the end of the program waits until all exports are sent and written.
	exportsTime = 12 * time.Second
)

// metricsFlags are the flags to serve metrics to Prometheus.
type metricsFlags struct {
	address  string
	insecure bool
}

func (m *metricsFlags) set(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&m.address, "metrics", "",
		"serve metrics for Prometheus at http://`HOST:PORT`/metrics, such as 127.0.0.1:9464, and health checks at /healthz and /readyz")
	f.BoolVar(&m.insecure, "metrics-insecure", false, "with --metrics: allow a non-loopback address without TLS")
}

// check validates the flags of a process that has no config.
func (m *metricsFlags) check() error {
	switch {
	case m.address == "" && m.insecure:
		return usagef("--metrics-insecure has no effect without --metrics; remove it")
	case m.address == "":
		return nil
	}
	if _, _, err := net.SplitHostPort(m.address); err != nil {
		return usagef("--metrics %q: give HOST:PORT, such as 127.0.0.1:9464", m.address)
	}
	if !m.insecure && !config.OnLoopback(m.address) {
		return usagef("--metrics %s: not a loopback address, and metrics are served without TLS to any client that can connect; use 127.0.0.1, or add --metrics-insecure on a network that you trust", m.address)
	}
	return nil
}

// sets returns the flags as keys of a run's config.
func (m *metricsFlags) sets(cmd *cobra.Command) (sets []string) {
	if cmd.Flags().Changed("metrics") {
		sets = append(sets, fmt.Sprintf("telemetry.metrics=%q", m.address))
	}
	if m.insecure {
		sets = append(sets, "telemetry.metrics_insecure=true")
	}
	return sets
}

// exports sends the metrics of runs to places other than the runs' own folders. It never delays a run: each
// export has its own subscription, which drops steps if the export is too slow.
type exports struct {
	a         *app
	collector *prom.Collector // nil: there are no metrics
	server    *prom.Server
	health    *health.Health
	notes     chan string    // warnings to show with the run
	submitted bool           // other users wrote the runs' configs: see otlp.Options.NoSecrets
	running   sync.WaitGroup // counts the subscriptions

	mu    sync.Mutex
	shown bool // nobody reads notes: warn prints
}

// openExports starts the metrics server of a process such as "coordinator", if an address is given.
func (a *app) openExports(process, address string, insecure bool) (*exports, error) {
	e := &exports{a: a, notes: make(chan string, limitNotes), health: health.New(process)}
	if address == "" {
		return e, nil
	}
	e.collector = prom.NewCollector()
	var err error
	if e.server, err = prom.ServeAll(address, insecure, prom.Served{Collector: e.collector, Health: e.health}); err != nil {
		return nil, err
	}
	if !config.OnLoopback(address) {
		say(a.err, "warning: metrics are served without TLS at %s: any client that can connect can read the runs' names and losses",
			e.server.URL())
	}
	return e, nil
}

// watch starts the exports of a run that its config asks for.
func (e *exports) watch(name string, cfg *config.Config, r *troupe.Run) {
	t := cfg.Telemetry
	if e.collector != nil {
		if run, err := e.collector.Add(name, r); err != nil {
			e.warn(fmt.Sprintf("metrics: %v", err))
		} else {
			e.follow(r, func() (observer, error) { return run, nil })
		}
	}
	if t.TensorBoard {
		e.follow(r, func() (observer, error) { return e.tensorboard(cfg, r.Info()) })
	}
	if otlp.Wanted(t.OTLP, os.LookupEnv) {
		e.follow(r, func() (observer, error) { return e.otel(name, cfg, r.Info()) })
	}
}

// observer receives the events of one run.
type observer interface {
	Observe(e troupe.Event)
	End(result troupe.Result, err error)
}

// follow passes a run's events to an observer until the run has ended. open may take a while; no event is
// lost in the meantime.
func (e *exports) follow(r *troupe.Run, open func() (observer, error)) {
	events := r.Subscribe()
	e.running.Add(1)
	go func() { // ends with the run
		defer e.running.Done()
		defer events.Close()
		o, err := open()
		if err != nil {
			e.warn(err.Error())
			return
		}
		for ev := range events.Events() {
			o.Observe(ev)
		}
		o.End(r.Wait())
	}()
}

// board writes a run's TensorBoard event file.
type board struct {
	*tensorboard.Recorder
	warn func(string)
}

func (b board) End(troupe.Result, error) {
	if err := b.Close(); err != nil {
		b.warn(err.Error())
	}
}

func (e *exports) tensorboard(cfg *config.Config, i troupe.Info) (observer, error) {
	rec, err := tensorboard.NewRecorder(tensorboard.Options{Run: i.Out, From: tensorboard.FirstStep(i), Config: string(cfg.TOML()),
		Warn: e.warn})
	if err != nil {
		return nil, err
	}
	return board{rec, e.warn}, nil
}

// sent sends the spans and metrics of a run to a collector.
type sent struct {
	*otel.Recorder
	providers *otlp.Providers
}

func (s sent) End(result troupe.Result, err error) {
	s.Recorder.End(result, err)
	s.providers.Close()
}

func (e *exports) otel(name string, cfg *config.Config, i troupe.Info) (observer, error) {
	p, err := otlp.Open(context.Background(), otlp.Options{Endpoint: cfg.Telemetry.OTLP, NoSecrets: e.submitted && cfg.Telemetry.OTLP != "" &&
		cfg.Telemetry.OTLP != os.Getenv(otlpEndpoint), Environment: os.LookupEnv, Warn: e.warn, Attributes: []attribute.KeyValue{
		attribute.String("service.name", "engine"), attribute.String("service.version", describeBuild().Version),
		attribute.String("service.instance.id", i.ID),
		attribute.String("engine.run", name), attribute.String("engine.run.id", i.ID), attribute.String("engine.run.folder", i.Out),
		attribute.String("engine.schedule", i.Schedule), attribute.Int("engine.stages", i.Stages), attribute.Int("engine.ranks", i.Ranks),
		attribute.Int("process.pid", os.Getpid()), attribute.String("process.runtime.version", runtime.Version())}})
	if err != nil {
		return nil, err
	}
	rec, err := otel.New(otel.Options{Run: name, Tracer: p.Tracer(), Meter: p.Meter(), StageOf: cfg.StageOf, ResumedAt: i.ResumedAt})
	if err != nil {
		p.Close()
		return nil, err
	}
	return sent{rec, p}, nil
}

// warn shows a warning, together with the run's output if there is any. It never waits.
func (e *exports) warn(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shown {
		say(e.a.err, "warning: %s", text)
		return
	}
	select {
	case e.notes <- text:
	default:
	}
}

// sayNotes prints the waiting warnings and makes warn print from now on, when nobody shows the run.
func (e *exports) sayNotes() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shown = true
	for len(e.notes) > 0 {
		say(e.a.err, "warning: %s", <-e.notes)
	}
}

// close waits up to exportsTime until the exports of ended runs are sent and written, then stops the metrics
// server.
func (e *exports) close() {
	e.sayNotes()
	done := make(chan struct{})
	go func() { // ends with the subscriptions, at the latest with the program
		e.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(exportsTime):
		say(e.a.err, "warning: exporting metrics did not finish in %v; some are missing", exportsTime)
	}
	if e.server != nil {
		e.server.Close()
	}
}

// noted is a run whose events include the warnings of its exports.
type noted struct {
	*troupe.Run
	events chan troupe.Event
}

// noting adds the warnings of the exports to the run's events.
func (e *exports) noting(r *troupe.Run) noted {
	n := noted{r, make(chan troupe.Event)}
	go func() { // ends with the run's events, which the reporter reads to the end
		defer close(n.events)
		events := r.Events()
		for {
			select {
			case ev, more := <-events:
				if !more {
					return
				}
				n.events <- ev
			case text := <-e.notes:
				n.events <- troupe.WarningEvent{Text: text}
			}
		}
	}()
	return n
}

// Events returns the run's events and the warnings.
func (n noted) Events() <-chan troupe.Event { return n.events }
