package ui

import (
	"math"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/telemetry"
)

// entry is a run that is shown: a live one, one of files, or a live one whose files are here.
type entry struct {
	id, name string
	files    *files // nil: there are none here
	live     *live  // nil: it is no run of this process

	mu       sync.Mutex // of what follows
	pictures []*picture // the newest last
	analysed time.Time  // when the last one was made
	took     time.Duration
}

func newEntry(id, name string) *entry { return &entry{id: id, name: name} }

func (e *entry) close() {
	if e.live != nil {
		e.live.close()
	}
	if e.files != nil {
		e.files.close()
	}
}

// folder is the run's files, which a live run has once it has begun.
func (e *entry) folder() *files {
	if e.live != nil {
		return e.live.folder()
	}
	return e.files
}

// curves are the run's figures, step by step.
func (e *entry) curves() curves {
	if f := e.folder(); f != nil {
		f.refresh()
		if c := f.curves(); c != nil && c.Len() > 0 {
			return c
		}
	}
	if e.live != nil {
		return e.live.records
	}
	return newMemory()
}

// marks are what happened to the run, behind the one with a number.
func (e *entry) marks(after int64) ([]mark, int64) {
	if e.live != nil {
		return e.live.marks.after(after)
	}
	e.files.refresh()
	return e.files.marks.after(after)
}

// description is what the page shows of a run in a line.
type description struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	Live         bool     `json:"live"`
	State        string   `json:"state"` // starting, running, paused, ended, stopped, failed or quiet
	Text         string   `json:"text,omitempty"`
	Step         int      `json:"step"`
	Steps        int      `json:"steps"`
	Loss         *float64 `json:"loss"`
	ValLoss      *float64 `json:"val_loss"`
	TokensPerS   *float64 `json:"tokens_per_s"`
	StepMS       *float64 `json:"step_ms"`
	BubblePct    *float64 `json:"bubble_pct"`
	IdealPct     *float64 `json:"ideal_bubble_pct"`
	PeakPct      *float64 `json:"peak_pct"`
	PeakMemBytes int64    `json:"peak_mem_bytes"`
	Tokens       int64    `json:"tokens"`
	Unit         string   `json:"unit"` // tokens, or samples
	Model        string   `json:"model"`
	Schedule     string   `json:"schedule"`
	Stages       int      `json:"stages"`
	Chunks       int      `json:"chunks"`
	Microbatches int      `json:"microbatches"`
	Ranks        int      `json:"ranks"`
	Grid         string   `json:"grid,omitempty"`
	Layout       string   `json:"layout,omitempty"`
	Device       string   `json:"device,omitempty"`
	Parameters   int64    `json:"parameters,omitempty"`
	TraceEvery   int      `json:"trace_every"`
	StatsEvery   *int     `json:"stats_every"`
	Updated      int64    `json:"updated_ms"` // Unix time of the last figure
	Error        string   `json:"error,omitempty"`
}

// describe says what a run is, and how far.
func (e *entry) describe() description {
	d := description{ID: e.id, Name: e.name, Live: e.live != nil, State: "starting", Unit: "tokens"}
	if f := e.folder(); f != nil {
		f.refresh()
		f.describe(&d)
	}
	if e.live != nil {
		e.live.describe(&d)
	}
	d.finite()
	return d
}

// take notes the figures of the last step. Those that a step need not have stay.
func (d *description) take(r telemetry.Record) {
	d.Step, d.Tokens = r.Step, max(d.Tokens, r.Tokens)
	for _, f := range []struct{ to, from **float64 }{{&d.Loss, &r.Loss}, {&d.ValLoss, &r.ValLoss}, {&d.TokensPerS, &r.TokensPerS}, {&d.StepMS, &r.StepMS}, {&d.BubblePct, &r.BubblePct}, {&d.PeakPct, &r.PeakPct}} {
		if *f.from != nil {
			*f.to = *f.from
		}
	}
	d.PeakMemBytes = max(d.PeakMemBytes, r.PeakMemBytes)
}

// finite takes out what JSON has no number for.
func (d *description) finite() {
	for _, f := range []**float64{&d.Loss, &d.ValLoss, &d.TokensPerS, &d.StepMS, &d.BubblePct, &d.IdealPct, &d.PeakPct} {
		if *f != nil && (math.IsNaN(**f) || math.IsInf(**f, 0)) {
			*f = nil
		}
	}
}
