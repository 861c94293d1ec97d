package ui

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/history"
)

// memory keeps the figures of a run that has no folder here. Where there are too many steps every
// second is forgotten, again and again.
type memory struct {
	mu      sync.Mutex
	records []telemetry.Record
	seconds []float64 // up to the end of each
	every   int       // steps between those that are kept
	elapsed float64
}

func newMemory() *memory { return &memory{every: 1} }

// add takes up a step. Steps may come again, when the run goes on from an older checkpoint.
func (m *memory) add(r telemetry.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n := len(m.records); n > 0 && m.records[n-1].Step >= r.Step; n = len(m.records) {
		m.records, m.seconds = m.records[:n-1], m.seconds[:n-1]
	}
	if r.StepMS != nil && *r.StepMS > 0 {
		m.elapsed += *r.StepMS / 1000
	}
	if r.Step%m.every != 0 && r.ValLoss == nil {
		return
	}
	m.records, m.seconds = append(m.records, r), append(m.seconds, m.elapsed)
	if len(m.records) > limitRecords {
		m.every *= 2
		n := 0
		for i, r := range m.records {
			if r.Step%m.every == 0 || r.ValLoss != nil && i%2 == 0 {
				m.records[n], m.seconds[n] = r, m.seconds[i]
				n++
			}
		}
		m.records, m.seconds = m.records[:n], m.seconds[:n]
	}
}

// Refresh does nothing: what comes is added.
func (m *memory) Refresh() error { return nil }

// Len is how many steps are kept.
func (m *memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.records)
}

// Last is the newest step.
func (m *memory) Last() (telemetry.Record, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.records) == 0 {
		return telemetry.Record{}, false
	}
	return m.records[len(m.records)-1], true
}

// figures are those that every run may have.
var figures = map[string]func(r *telemetry.Record) *float64{
	"loss":         func(r *telemetry.Record) *float64 { return r.Loss },
	"val_loss":     func(r *telemetry.Record) *float64 { return r.ValLoss },
	"grad_norm":    func(r *telemetry.Record) *float64 { return r.GradNorm },
	"lr":           func(r *telemetry.Record) *float64 { return r.LR },
	"tokens_per_s": func(r *telemetry.Record) *float64 { return r.TokensPerS },
	"step_ms":      func(r *telemetry.Record) *float64 { return r.StepMS },
	"bubble_pct":   func(r *telemetry.Record) *float64 { return r.BubblePct },
	"peak_mem_bytes": func(r *telemetry.Record) *float64 {
		if r.PeakMemBytes == 0 {
			return nil
		}
		v := float64(r.PeakMemBytes)
		return &v
	},
	"peak_pct": func(r *telemetry.Record) *float64 { return r.PeakPct },
}

// figureOf is a figure of a step by its name.
func figureOf(r *telemetry.Record, name string) *float64 {
	if f := figures[name]; f != nil {
		return f(r)
	}
	of, key, _ := strings.Cut(name, ".")
	all := r.Metrics
	if of == "val_metrics" {
		all = r.ValMetrics
	} else if of != "metrics" {
		return nil
	}
	if v, ok := all[key]; ok {
		return &v
	}
	return nil
}

// Names are the figures that some step has.
func (m *memory) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	has := make(map[string]bool)
	for i := range m.records {
		r := &m.records[i]
		for name, f := range figures {
			if !has[name] && f(r) != nil {
				has[name] = true
			}
		}
		for name := range r.Metrics {
			has["metrics."+name] = true
		}
		for name := range r.ValMetrics {
			has["val_metrics."+name] = true
		}
	}
	return slices.Sorted(maps.Keys(has))
}

// Series is a curve between two points of its axis, in at most as many buckets.
func (m *memory) Series(name string, by history.Axis, from, to float64, buckets int) (all []history.Bucket) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := func(i int) float64 {
		switch by {
		case history.ByTokens:
			return float64(m.records[i].Tokens)
		case history.BySeconds:
			return m.seconds[i]
		}
		return float64(m.records[i].Step)
	}
	n := len(m.records)
	if n == 0 || buckets < 1 {
		return nil
	}
	from, to = max(from, x(0)), min(to, x(n-1))
	width := (to - from) / float64(buckets)
	at := -1
	for i := range m.records {
		v := figureOf(&m.records[i], name)
		p := x(i)
		if v == nil || p < from || p > to {
			continue
		}
		k := 0
		if width > 0 {
			k = min(buckets-1, int((p-from)/width))
		}
		if k != at || len(all) == 0 {
			at = k
			all = append(all, history.Bucket{Min: math.Inf(1), Max: math.Inf(-1)})
		}
		b := &all[len(all)-1]
		count(b, m.records[i].Step, p, *v)
	}
	for i := range all {
		if all[i].N == all[i].Nulls {
			all[i].Min, all[i].Max, all[i].Mean = math.NaN(), math.NaN(), math.NaN()
		}
	}
	return all
}

// count counts a value. One that is not finite counts, but for the least, the greatest and the mean.
func count(b *history.Bucket, step int, x, v float64) {
	b.Step, b.X, b.Last = step, x, v
	b.N++
	if math.IsNaN(v) || math.IsInf(v, 0) {
		b.Nulls++
		return
	}
	b.Min, b.Max = min(b.Min, v), max(b.Max, v)
	b.Mean += (v - b.Mean) / float64(b.N-b.Nulls)
}
