package ui

import (
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/telemetry"
)

// Run is a live run as the server watches it. *troupe.Run is one, and so is *cluster.Followed.
type Run interface {
	// Info describes the run; it may wait until that has begun.
	Info() troupe.Info
	Status() troupe.Status
	Wait() (troupe.Result, error)
	Change(c troupe.Change) error
}

// subscribe gives what happens in a run, until it has ended or stop is called.
func subscribe(run Run) (events <-chan troupe.Event, stop func()) {
	return nil, func() {}
}

// record has the actions of the steps that begin within a time recorded.
func record(run Run, d time.Duration) {}

// underWay is what is known of the step in progress.
type underWay struct {
	step  int64
	phase actors.Phase
	began time.Time
	ranks [][]actors.ActionTime // finished actions of each rank
}

func actionsOf(run Run) (underWay, bool) { return underWay{}, false }

// peakOf is the share of the processor's peak; was: what is known without it.
func peakOf(r telemetry.Record, was *float64) *float64 { return was }
