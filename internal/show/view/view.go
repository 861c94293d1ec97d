package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// View is what is known of a run. It is for one goroutine.
type View struct {
	o      Options
	info   troupe.Info
	last   telemetry.Record
	ideal  float64
	val    *float64
	meter  telemetry.Meter
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

// Options say what a terminal can show.
type Options struct {
	Unicode bool // else ASCII
	Colour  bool
}

// New makes an empty view.
func New(o Options) *View { return &View{o: o} }

// Begin tells what run it is.
func (v *View) Begin(i troupe.Info) {
	v.info, v.ideal = i, i.BubblePct
	v.last.Step = i.ResumedAt
}

// Event tells what has happened.
func (v *View) Event(e troupe.Event, now time.Time) {
	m, _ := event.MarkOf(e, v.last.Step)
	switch e := e.(type) {
	case troupe.StepEvent:
		v.step(e)
	case troupe.CheckpointEvent:
		v.checkpoint = m.Text
	case troupe.WarningEvent:
		v.warning, v.warned = m.Text, now
	case troupe.RestartEvent:
		v.warning, v.warned = m.Text, now
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

// Observe tells what every actor does now, and what is recorded of the step under way.
func (v *View) Observe(s event.Status, a troupe.Actions) {
	if len(s.Actors) == 0 {
		return // the coordinator can't be asked at the moment
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

// stages are the snapshots of the stages, by host and rank.
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

// Scroll moves the list of stages.
func (v *View) Scroll(rows int) { v.scroll = max(0, v.scroll+rows) }

// Paused reports whether the run is.
func (v *View) Paused() bool { return v.paused }
