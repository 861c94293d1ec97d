package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// View draws a run. It is for one goroutine.
type View struct {
	o      Options
	info   troupe.Info
	last   telemetry.Record
	ideal  float64
	val    *float64
	meter  telemetry.Meter
	began  time.Time // of the first event
	at     time.Time // of the last one
	best   float64   // validation loss
	bestAt int       // its step; -1: none
	sample string
	loss   series
	vals   series
	status event.Status
	ranks  []strip

	checkpoint, warning string
	warned              time.Time
	paused              bool
	pausedAt            int64
	stall               []string
	scroll              int
}

// Options describe the terminal.
type Options struct {
	Unicode bool // false: ASCII only
	Colour  bool
}

// New returns an empty view.
func New(o Options) *View { return &View{o: o, bestAt: -1} }

// Begin sets the description of the run.
func (v *View) Begin(i troupe.Info) {
	v.info, v.ideal = i, i.BubblePct
	v.last.Step = i.ResumedAt
}

// Event updates the view with an event.
func (v *View) Event(e troupe.Event, now time.Time) {
	m, _ := event.MarkOf(e, v.last.Step)
	if v.at = now; v.began.IsZero() {
		v.began = now
	}
	switch e := e.(type) {
	case troupe.TextEvent:
		v.sample = m.Text
	case troupe.StepEvent:
		v.step(e)
	case troupe.CheckpointEvent:
		v.checkpoint = m.Text
	case troupe.WarningEvent:
		v.warning, v.warned = m.Text, now
	case troupe.RestartEvent:
		v.warning, v.warned = m.Text, now
		v.ranks, v.stall = nil, nil
	case troupe.ReplaceEvent:
		v.warning, v.warned = m.Text, now
		v.ranks, v.stall = nil, nil
	case troupe.RegroupEvent:
		v.checkpoint = m.Text
		v.ranks, v.stall = nil, nil
	case troupe.PauseEvent:
		v.paused, v.pausedAt = e.Paused, e.Step
	case troupe.StallEvent:
		v.stall = e.Status.Chain()
	}
}

func (v *View) step(e troupe.StepEvent) {
	v.stall = nil
	if v.last.Step = e.Step; e.Step > 0 {
		v.last = e.Record
	}
	v.ideal = e.IdealBubblePct
	if e.ValLoss != nil {
		v.val = e.ValLoss
		if v.bestAt < 0 || *e.ValLoss < v.best {
			v.best, v.bestAt = *e.ValLoss, e.Step
		}
		v.vals.add(e.Step, *e.ValLoss)
	}
	if e.Loss != nil {
		v.loss.add(e.Step, *e.Loss)
	}
	if e.StepMS != nil && e.TokensPerS != nil {
		took := time.Duration(*e.StepMS * float64(time.Millisecond))
		v.meter.Add(took, int64(*e.TokensPerS*took.Seconds()))
	}
	for r, times := range e.Trace {
		v.rank(r).keep(times)
	}
}

// Observe updates the view with the status of the actors and the recorded actions of the current step.
func (v *View) Observe(s event.Status, a troupe.Actions) {
	if len(s.Actors) == 0 {
		return // the coordinator does not answer at the moment
	}
	v.status = s
	if len(v.stall) > 0 {
		v.stall = s.Chain()
	}
	for _, one := range s.Actors {
		if one.Rank >= 0 {
			v.rank(one.Rank).observe(one, s.Time)
		}
	}
	for r, times := range a.Ranks {
		if v.rank(r).now = times; len(times) > 0 {
			v.rank(r).exact = true
		}
	}
}

func (v *View) rank(r int) *strip {
	for len(v.ranks) <= r {
		v.ranks = append(v.ranks, strip{})
	}
	return &v.ranks[r]
}

// stages returns the snapshots of the stages, sorted by host and rank.
func (v *View) stages() []event.Snapshot {
	var all []event.Snapshot
	for _, a := range v.status.Actors {
		if a.Rank >= 0 {
			all = append(all, a)
		}
	}
	slices.SortStableFunc(all, func(a, b event.Snapshot) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Rank, b.Rank))
	})
	return all
}

// Scroll scrolls the list of stages by a number of rows.
func (v *View) Scroll(rows int) { v.scroll = max(0, v.scroll+rows) }

// Paused reports whether the run is paused.
func (v *View) Paused() bool { return v.paused }
