package ui

import (
	"time"

	"github.com/troupe-ml/troupe"
)

// Run is a live run that a server watches. *troupe.Run is a Run. *cluster.Followed has all its methods except Change,
// which must ask the coordinator.
type Run interface {
	// Info describes the run. It may block until the run has started.
	Info() troupe.Info
	// Subscribe returns the events from now on.
	Subscribe() *troupe.Subscription
	// Status returns what every actor does.
	Status() troupe.Status
	// Record makes the run record the actions of the steps that begin within d.
	Record(d time.Duration)
	// Actions returns the recorded actions of the current step.
	Actions() troupe.Actions
	// Change requests a change of the run.
	Change(c troupe.Change) error
	// Wait waits for the end of the run and returns its result.
	Wait() (troupe.Result, error)
}
