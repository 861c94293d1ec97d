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

// Source is asked when somebody scrapes. *troupe.Run is one.
type Source interface {
	Info() troupe.Info
	Status() troupe.Status
	RankMemory() []int64
}

// Errors of Collector.Add.
var (
	// ErrName: a run of that name goes on in the collector.
	ErrName = errors.New("a run of that name is shown already")
	// ErrRuns: there are as many as there may be.
	ErrRuns = errors.New("too many runs are shown")
)

// Collector has the figures of runs; it is a prometheus.Collector.
type Collector struct {
	steps, saves *prometheus.HistogramVec
	now          func() time.Time

	mu    sync.Mutex
	going []*Run
	ended []*Run // the last ones
}

// NewCollector makes a Collector without runs.
func NewCollector() *Collector {
	return &Collector{now: time.Now,
		steps: newHistogram("step_duration_seconds", "How long a step took."),
		saves: newHistogram("checkpoint_duration_seconds", "How long writing a checkpoint took.")}
}

// Add shows a run under a name, its label run. The caller passes the run's events to the Run, and
// ends it.
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
	c.ended = slices.DeleteFunc(c.ended, func(r *Run) bool { return r.name == name }) // it goes on
	info := from.Info()
	r := &Run{c: c, name: name, from: from, state: running, counts: info.ResumedAt == 0}
	r.last.Step = info.ResumedAt
	c.steps.WithLabelValues(name)
	c.saves.WithLabelValues(name)
	c.going = append(c.going, r)
	return r, nil
}

// end keeps a run that has ended for a while.
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

// Describe tells what there may be.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descs {
		to <- d
	}
	c.steps.Describe(to)
	c.saves.Describe(to)
}

// Collect tells what there is.
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

// Handler serves the collector, and figures of the process and of Go. It belongs under /metrics.
func (c *Collector) Handler() http.Handler {
	own := prometheus.NewRegistry()
	own.MustRegister(c, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(own, promhttp.HandlerOpts{MaxRequestsInFlight: limitScrapes, Timeout: scrapeTime, EnableOpenMetrics: true,
		ErrorHandling: promhttp.ContinueOnError})
}
