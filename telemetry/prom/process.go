package prom

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/troupe-ml/troupe/telemetry/process"
)

// Metrics are a source of metrics, as the client library knows it.
type Metrics = prometheus.Collector

// processMetrics are the metrics of a cluster's process.
type processMetrics[S any] struct {
	figures []process.Figure[S]
	descs   []*prometheus.Desc
	state   func() S
}

// NewProcess returns a collector of the metrics of a process: process.CoordinatorFigures or process.WorkerFigures. state is
// called at each scrape.
func NewProcess[S any](figures []process.Figure[S], state func() S) Metrics {
	p := processMetrics[S]{figures: figures, state: state}
	for i := range figures {
		p.descs = append(p.descs, prometheus.NewDesc(prefix+figures[i].Name(), figures[i].Help, figures[i].Labels, nil))
	}
	return p
}

// Describe sends the descriptions of all metrics.
func (p processMetrics[S]) Describe(to chan<- *prometheus.Desc) {
	for _, d := range p.descs {
		to <- d
	}
}

// Collect sends the current metrics. Of values with equal labels it sends the first, and of each figure at most
// process.LimitSeries.
func (p processMetrics[S]) Collect(to chan<- prometheus.Metric) {
	s := p.state()
	for i := range p.figures {
		f, told := &p.figures[i], make(map[string]bool)
		kind := prometheus.GaugeValue
		if f.Total {
			kind = prometheus.CounterValue
		}
		f.Each(&s, func(v float64, labels ...string) {
			for j, l := range labels {
				labels[j] = label(l)
			}
			key := strings.Join(labels, "\x00")
			if told[key] || len(told) >= process.LimitSeries {
				return
			}
			told[key] = true
			to <- prometheus.MustNewConstMetric(p.descs[i], kind, v, labels...)
		})
	}
}
