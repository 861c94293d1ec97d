package prom

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/troupe-ml/troupe"
)

// Source is a run that the collector queries at each scrape. *troupe.Run is a Source.
type Source interface {
	Info() troupe.Info
	Status() troupe.Status
	RankMemory() []int64
}

// Errors of Collector.Add.
var (
	// ErrName means that the collector already shows an active run of that name.
	ErrName = errors.New("the collector already shows a run of that name")
	// ErrRuns means that the collector shows as many active runs as it can.
	ErrRuns = errors.New("the collector shows too many runs")
)

// Collector holds the metrics of runs. It is a prometheus.Collector.
type Collector struct {
	steps, saves *prometheus.HistogramVec
	now          func() time.Time

	mu    sync.Mutex
	going []*Run
	ended []*Run // the last runs that have ended
	more  []Metrics
}

// NewCollector returns a Collector without runs.
func NewCollector() *Collector {
	return &Collector{now: time.Now,
		steps: newHistogram("step_duration_seconds", "Duration of a step."),
		saves: newHistogram("checkpoint_duration_seconds", "Duration of writing a checkpoint.")}
}

// Add adds a run under a name, the value of its label run. The caller passes the run's events to Observe of the
// result and calls its End.
func (c *Collector) Add(name string, from Source) (*Run, error) {
	name = label(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.going, func(r *Run) bool { return r.name == name }) {
		return nil, fmt.Errorf("%w: %q", ErrName, name)
	}
	if len(c.going) >= limitRuns {
		return nil, fmt.Errorf("%w: %d", ErrRuns, len(c.going))
	}
	c.ended = slices.DeleteFunc(c.ended, func(r *Run) bool { return r.name == name }) // a resumed run
	info := from.Info()
	r := &Run{c: c, name: name, from: from, state: running, counts: info.ResumedAt == 0}
	r.last.Step = info.ResumedAt
	c.steps.WithLabelValues(name)
	c.saves.WithLabelValues(name)
	c.going = append(c.going, r)
	return r, nil
}

// end keeps a run that has ended until limitEnded others have ended after it.
func (c *Collector) end(r *Run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.going, r) {
		return
	}
	c.going = slices.DeleteFunc(c.going, func(other *Run) bool { return other == r })
	c.ended = append(c.ended, r)
	for len(c.ended) > limitEnded {
		c.steps.DeleteLabelValues(c.ended[0].name)
		c.saves.DeleteLabelValues(c.ended[0].name)
		c.ended = c.ended[1:]
	}
}

// Describe sends the descriptions of all metrics.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descs {
		to <- d
	}
	c.steps.Describe(to)
	c.saves.Describe(to)
}

// Collect sends the current metrics.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	all := slices.Concat(c.ended, c.going)
	c.mu.Unlock()
	for _, r := range all {
		r.collect(to)
	}
	c.steps.Collect(to)
	c.saves.Collect(to)
}

// Include adds another collector to what Handler serves from now on, such as one of NewProcess.
func (c *Collector) Include(more Metrics) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.more = append(c.more, more)
}

// included is what Include has added. Its metrics are not described before: they are checked at each scrape.
type included struct{ c *Collector }

func (included) Describe(chan<- *prometheus.Desc) {}

func (i included) Collect(to chan<- prometheus.Metric) {
	i.c.mu.Lock()
	more := slices.Clone(i.c.more)
	i.c.mu.Unlock()
	for _, m := range more {
		m.Collect(to)
	}
}

// Handler returns a handler for /metrics: it serves the collector, what Include has added, and the metrics of the process
// and of Go.
func (c *Collector) Handler() http.Handler {
	own := prometheus.NewRegistry()
	own.MustRegister(c, included{c}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(own, promhttp.HandlerOpts{MaxRequestsInFlight: limitScrapes, Timeout: scrapeTime, EnableOpenMetrics: true,
		ErrorHandling: promhttp.ContinueOnError})
}
