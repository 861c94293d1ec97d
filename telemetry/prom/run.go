package prom

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// The states of a run.
const (
	running = "running"
	paused  = "paused"
	done    = "done"
	stopped = "stopped"
	failed  = "failed"
)

// Run is one run of a Collector.
type Run struct {
	c    *Collector
	name string
	from Source

	mu        sync.Mutex
	state     string
	last      telemetry.Record // of the last step
	ideal     float64
	counts    bool // last.Tokens is known
	back      bool // the run restarted from a checkpoint, and no step has finished since
	valLoss   *float64
	valValues map[string]float64
	valLosses map[string]float64 // of the further sets
	bubbles   []float64          // by rank, of the last recorded step

	steps, skipped, tokens                  float64
	restarts, stalls, warnings, checkpoints float64
	replacements                            float64
	saved                                   int64
	savedAt, steppedAt                      time.Time
}

// Observe updates the metrics with an event of the run. It never blocks.
func (r *Run) Observe(e troupe.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e := e.(type) {
	case troupe.StepEvent:
		r.step(e)
	case troupe.CheckpointEvent:
		if e.Weights { // the run does not resume from it
			break
		}
		r.checkpoints++
		r.saved, r.savedAt = e.Step, r.c.now()
		r.c.saves.WithLabelValues(r.name).Observe(e.Took.Seconds())
	case troupe.RestartEvent:
		r.restarts++
		r.back = true
	case troupe.ReplaceEvent:
		r.replacements++
	case troupe.StallEvent:
		r.stalls++
	case troupe.WarningEvent:
		r.warnings++
	case troupe.PauseEvent:
		if r.state = running; e.Paused {
			r.state = paused
		}
	}
}

// step counts a step, and the steps before it whose events were dropped. mu is held.
func (r *Run) step(e troupe.StepEvent) {
	was := r.last
	r.ideal, r.steppedAt = e.IdealBubblePct, r.c.now()
	if e.ValLoss != nil {
		r.valLoss, r.valValues, r.valLosses = e.ValLoss, e.ValMetrics, e.ValLosses
	}
	if e.Trace != nil {
		r.bubbles = bubblesOf(e.Trace)
	}
	if r.last = e.Record; e.Step == 0 {
		return // the validation before training
	}
	switch more := e.Step - was.Step; {
	case !r.back && more > 0:
		r.steps += float64(more)
	default:
		r.steps++
	}
	switch more := e.Tokens - was.Tokens; {
	case r.counts && !r.back && more > 0:
		r.tokens += float64(more)
	case e.TokensPerS != nil && e.StepMS != nil && *e.TokensPerS >= 0 && *e.StepMS >= 0:
		r.tokens += math.Round(*e.TokensPerS * *e.StepMS / 1e3)
	}
	r.counts, r.back = true, false
	if e.Skipped {
		r.skipped++
	}
	if e.StepMS != nil {
		r.c.steps.WithLabelValues(r.name).Observe(*e.StepMS / 1e3)
	}
}

// bubblesOf returns each rank's share of a recorded step without a running action; nil: no action ran.
func bubblesOf(trace [][]event.ActionTime) []float64 {
	var first, end time.Time
	busy := make([]time.Duration, len(trace))
	for rank, row := range trace {
		var until time.Time // the two actions of a pair have the same times
		for _, a := range row {
			if first.IsZero() || a.Start.Before(first) {
				first = a.Start
			}
			if a.End.After(end) {
				end = a.End
			}
			from := a.Start
			if from.Before(until) {
				from = until
			}
			if a.End.After(from) {
				busy[rank] += a.End.Sub(from)
				until = a.End
			}
		}
	}
	whole := end.Sub(first)
	if whole <= 0 {
		return nil
	}
	bubbles := make([]float64, len(busy))
	for rank, b := range busy {
		bubbles[rank] = 1 - float64(b)/float64(whole)
	}
	return bubbles
}

// End records the result of the run. The collector keeps its last metrics until other runs replace it.
func (r *Run) End(result troupe.Result, err error) {
	r.mu.Lock()
	switch r.from = nil; {
	case err != nil:
		r.state = failed
	case result.Stopped:
		r.state = stopped
	default:
		r.state = done
	}
	r.bubbles = nil
	r.mu.Unlock()
	r.c.end(r)
}

// collect sends the metrics of the run. It queries the run and sends without holding the lock, so that a slow scrape
// does not block events.
func (r *Run) collect(to chan<- prometheus.Metric) {
	t := &teller{run: r.name}
	defer func() {
		for _, m := range t.told {
			to <- m
		}
	}()
	r.mu.Lock()
	from, bubbles := r.from, r.bubbles
	r.figures(t)
	r.mu.Unlock()
	if from == nil {
		return
	}
	info := from.Info()
	t.gauge(descInfo, 1, label(info.ID), label(info.Family), label(info.Schedule), label(info.Device), label(info.Kernels))
	t.gauge(descStages, float64(info.Stages))
	t.gauge(descRanks, float64(info.Ranks))
	t.gauge(descParams, float64(info.Parameters))
	t.gauge(descPlanned, float64(info.Steps))
	t.ranks(from.Status(), from.RankMemory(), bubbles)
}

// figures adds the metrics that come from events. mu is held.
func (r *Run) figures(t *teller) {
	t.gauge(descState, 1, r.state)
	isPaused := 0.0
	if r.state == paused {
		isPaused = 1
	}
	t.gauge(descPaused, isPaused)
	t.gauge(descStep, float64(r.last.Step))
	t.counter(descSteps, r.steps)
	t.counter(descSkipped, r.skipped)
	t.counter(descTokens, r.tokens)
	t.counter(descRestarts, r.restarts)
	t.counter(descReplaced, r.replacements)
	t.counter(descStalls, r.stalls)
	t.counter(descWarnings, r.warnings)
	t.counter(descCheckpoints, r.checkpoints)
	if !r.savedAt.IsZero() {
		t.gauge(descSaved, float64(r.saved))
		t.gauge(descSavedAt, unix(r.savedAt))
	}
	if !r.steppedAt.IsZero() {
		t.gauge(descSteppedAt, unix(r.steppedAt))
	}
	last := r.last
	last.ValLoss = r.valLoss
	for i, d := range descFigures {
		f := &telemetry.Figures[i]
		if v := f.Get(&last); v != nil && d != nil {
			t.gauge(d, f.Scaled(*v))
		}
	}
	if r.last.BubblePct != nil {
		t.gauge(descIdeal, r.ideal/100)
	}
	t.named(descMetric, r.last.Metrics)
	t.named(descValues, r.valValues)
	t.named(descSets, r.valLosses)
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }

// teller gathers the metrics of one run.
type teller struct {
	run  string
	told []prometheus.Metric
}

func (t *teller) gauge(d *prometheus.Desc, v float64, labels ...string) {
	t.told = append(t.told, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{t.run}, labels...)...))
}

func (t *teller) counter(d *prometheus.Desc, v float64) {
	t.told = append(t.told, prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, t.run))
}

// named adds the metrics of the model's own layers. Of names that are equal after they are cut it takes the first.
func (t *teller) named(d *prometheus.Desc, figures map[string]float64) {
	told := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		if l := label(name); !told[l] && len(told) < limitMetrics {
			told[l] = true
			t.gauge(d, figures[name], l)
		}
	}
}

// label makes a text a valid value of a label.
func label(text string) string {
	if len(text) > limitLabelBytes {
		text = text[:limitLabelBytes]
	}
	return strings.ToValidUTF8(text, "")
}
