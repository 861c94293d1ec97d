package ui

import (
	"math"
	"slices"
	"time"

	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/history"
)

// results sum up a run's metrics for the list of runs and the head of its page.
type results struct {
	BestVal  *number           `json:"best_val_loss"` // null: no validation
	BestStep int               `json:"best_step"`
	ValStep  int               `json:"val_step"` // of the last validation
	Seconds  number            `json:"seconds"`  // of all steps
	Medians  map[string]number `json:"medians"`  // of the metrics that depend on the machine
}

// medianPoints bounds the points of a series of which a median is taken. A longer series is first averaged over so
// many equal parts.
const medianPoints = 1001

// sum returns the results of a history.
func sum(h *history.History) results {
	r := results{Medians: make(map[string]number)}
	if h.Len() == 0 {
		return r
	}
	if _, seconds, ok := h.Span(history.BySeconds); ok {
		r.Seconds = number(seconds)
	}
	steps, values := h.Figures("val_loss")
	for i, v := range values {
		r.ValStep = steps[i]
		if !math.IsNaN(v) && (r.BestVal == nil || v < float64(*r.BestVal)) {
			best := number(v)
			r.BestVal, r.BestStep = &best, steps[i]
		}
	}
	for i := range telemetry.Figures {
		f := &telemetry.Figures[i]
		if !f.Machine || f.Unit == telemetry.Bytes {
			continue
		}
		if v := median(h.Series(f.Name, history.BySteps, math.Inf(-1), math.Inf(1), medianPoints)); !math.IsNaN(v) {
			r.Medians[f.Name] = number(v)
		}
	}
	return r
}

// median returns the median of the means of buckets; NaN: there are none.
func median(all []history.Bucket) float64 {
	var values []float64
	for _, b := range all {
		if !math.IsNaN(b.Mean) {
			values = append(values, b.Mean)
		}
	}
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return values[(n-1)/2]/2 + values[n/2]/2
}

// results returns the results of a run. It computes them again if there are new metrics, at most once in filesEvery.
func (e *entry) results() results {
	h := e.curves()
	e.sumMu.Lock()
	defer e.sumMu.Unlock()
	if h != e.summed || h.Len() != e.rows && time.Since(e.sumAt) >= filesEvery {
		e.sum, e.summed, e.rows, e.sumAt = sum(h), h, h.Len(), time.Now()
	}
	return e.sum
}
