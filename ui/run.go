package ui

import (
	"encoding/json"
	"math"
	"path/filepath"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/history"
)

// entry is a run of the server: a live run, the files of a run, or both.
type entry struct {
	id, name string
	files    *files // nil: there are no files
	live     *live  // nil: the run is not live

	mu       sync.Mutex // of what follows
	pictures []*picture // the newest last
	analysed time.Time  // time of the last drawing
	took     time.Duration

	sumMu  sync.Mutex // of what follows
	sum    results
	summed *history.History // that sum is of
	rows   int
	sumAt  time.Time
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

// folder returns the run's files. A live run has them after its start.
func (e *entry) folder() *files {
	if e.live != nil {
		return e.live.folder()
	}
	return e.files
}

// path returns the run's folder; "": not readable here.
func (e *entry) path() string {
	f := e.folder()
	if f == nil {
		return ""
	}
	path, err := filepath.Abs(f.path)
	if err != nil {
		return ""
	}
	return path
}

// curves returns the run's metrics.
func (e *entry) curves() *history.History {
	if f := e.folder(); f != nil {
		f.refresh()
		if c := f.curves(); c != nil && c.Len() > 0 {
			return c
		}
	}
	if e.live != nil {
		return e.live.records
	}
	return history.New(0)
}

// marks returns the run's marks after the one with a number.
func (e *entry) marks(after int64) ([]mark, int64) {
	if e.live != nil {
		return e.live.marks.after(after)
	}
	e.files.refresh()
	return e.files.marks.after(after)
}

// description describes a run for the list and the head of the page.
type description struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	Live         bool     `json:"live"`
	State        string   `json:"state"` // starting, running, paused, ended, stopped, failed or quiet
	Text         string   `json:"text,omitempty"`
	Step         int      `json:"step"`
	Steps        int      `json:"steps"`
	IdealPct     *float64 `json:"ideal_bubble_pct"`
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
	LR           *float64 `json:"peak_lr"` // configured peak of the learning rate
	Traced       bool     `json:"traced"`  // a step was recorded
	TraceEvery   int      `json:"trace_every"`
	StatsEvery   *int     `json:"stats_every"`
	Updated      int64    `json:"updated_ms"` // Unix time of the last metrics, in milliseconds
	Error        string   `json:"error,omitempty"`

	Differs []keyValue `json:"differs,omitempty"` // in the list of runs: what distinguishes it from the others

	results
	last telemetry.Record // the newest value of each figure
}

// MarshalJSON adds the figures by name. A value that is not finite or was not measured is null.
func (d description) MarshalJSON() ([]byte, error) {
	type plain description
	text, err := json.Marshal(plain(d))
	if err != nil {
		return nil, err
	}
	figures := make(map[string]*float64, len(telemetry.Figures))
	for i := range telemetry.Figures {
		f := &telemetry.Figures[i]
		v := f.Get(&d.last)
		switch {
		case v == nil && f.Whole():
			v = new(float64)
		case v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)):
			v = nil
		}
		figures[f.Name] = v
	}
	more, err := json.Marshal(figures)
	return append(append(text[:len(text)-1], ','), more[1:]...), err
}

// describe returns the description of a run.
func (e *entry) describe() description {
	d := description{ID: e.id, Name: e.name, Live: e.live != nil, State: "starting", Unit: "tokens"}
	if f := e.folder(); f != nil {
		f.refresh()
		f.describe(&d)
	}
	if e.live != nil {
		e.live.describe(&d)
	}
	d.results = e.results()
	_, d.Traced = e.lastTraced()
	if d.IdealPct != nil && (math.IsNaN(*d.IdealPct) || math.IsInf(*d.IdealPct, 0)) {
		d.IdealPct = nil
	}
	return d
}

// take sets the figures of the last step. It keeps the values of figures that the step does not report.
func (d *description) take(r telemetry.Record) {
	d.Step, d.Tokens = r.Step, max(d.Tokens, r.Tokens)
	for i := range telemetry.Figures {
		f := &telemetry.Figures[i]
		if v := f.Get(&r); v != nil && !(f.Whole() && f.Get(&d.last) != nil && *f.Get(&d.last) > *v) {
			f.Set(&d.last, v)
		}
	}
}
