package cli

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/attribute"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/telemetry/otel"
	"github.com/troupe-ml/troupe/telemetry/otel/otlp"
	"github.com/troupe-ml/troupe/telemetry/prom"
	"github.com/troupe-ml/troupe/telemetry/tensorboard"
)

const (
	// limitNotes bounds the warnings of exports that wait to be shown; further ones are dropped.
	limitNotes = 64
	// otlpEndpoint is the variable that names the environment's collector.
	otlpEndpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	// exportsTime is how long the end of a program waits until what is exported is sent and
	// written.
	exportsTime = 12 * time.Second
)

// metricsFlags are those by which a program serves Prometheus.
type metricsFlags struct {
	address  string
	insecure bool
}

func (m *metricsFlags) set(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&m.address, "metrics", "", "serve metrics for Prometheus at `host:port`, such as 127.0.0.1:9464, under /metrics")
	f.BoolVar(&m.insecure, "metrics-insecure", false, "with --metrics: the address may be one that other hosts reach, in the clear")
}

// sets are the flags as keys of a run's configuration.
func (m *metricsFlags) sets(cmd *cobra.Command) (sets []string) {
	if cmd.Flags().Changed("metrics") {
		sets = append(sets, fmt.Sprintf("telemetry.metrics=%q", m.address))
	}
	if m.insecure {
		sets = append(sets, "telemetry.metrics_insecure=true")
	}
	return sets
}

// exports are where figures of runs go beside the runs' own folders. Nothing of it holds a run up:
// each has a subscription of its own, which loses steps where it is too slow.
type exports struct {
	a         *app
	collector *prom.Collector // nil: there are no metrics
	server    *prom.Server
	notes     chan string    // warnings for who shows the run
	submitted bool           // the runs' configurations are others': see otlp.Options.NoSecrets
	running   sync.WaitGroup // one for each subscription

	mu    sync.Mutex
	shown bool // nobody reads notes: they are said
}

// openExports serves the metrics, if there are to be any.
func (a *app) openExports(address string, insecure bool) (*exports, error) {
	e := &exports{a: a, notes: make(chan string, limitNotes)}
	if address == "" {
		return e, nil
	}
	e.collector = prom.NewCollector()
	var err error
	if e.server, err = prom.Serve(address, insecure, e.collector); err != nil {
		return nil, err
	}
	if !config.OnLoopback(address) {
		say(a.err, "warning: metrics are served in the clear at %s: whoever reaches it reads the runs' names and losses", e.server.URL())
	}
	return e, nil
}

// watch begins to export a run under a name, as its configuration says.
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

// observer is told of one run.
type observer interface {
	Observe(e troupe.Event)
	End(result troupe.Result, err error)
}

// follow tells an observer of a run until it has ended. Making it may take a while, in which no
// event is lost.
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

// board is the event file of a run.
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

// sent are the spans and metrics of a run on their way to a collector.
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

// warn shows a warning, with the run where that is shown. It never waits.
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

// sayNotes says warnings from now on: nobody shows them otherwise.
func (e *exports) sayNotes() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shown = true
	for len(e.notes) > 0 {
		say(e.a.err, "warning: %s", <-e.notes)
	}
}

// close waits until what is exported of runs that have ended is sent and written, or until it has
// taken too long, and serves no more.
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
		say(e.a.err, "warning: not all that was to be exported could be in %v", exportsTime)
	}
	if e.server != nil {
		e.server.Close()
	}
}

// noted is a run whose events have the warnings of its exports among them.
type noted struct {
	*troupe.Run
	events chan troupe.Event
}

// noting gives what shows a run the warnings of its exports.
func (e *exports) noting(r *troupe.Run) noted {
	n := noted{r, make(chan troupe.Event)}
	go func() { // ends with the run's events, which whoever shows them reads to their end
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

// Events are the run's, and warnings.
func (n noted) Events() <-chan troupe.Event { return n.events }
