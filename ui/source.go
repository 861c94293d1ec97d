package ui

import (
	"time"

	"github.com/troupe-ml/troupe"
)

// Run is a live run as the server watches it. *troupe.Run is one; of a run that a cluster trains
// *cluster.Followed has all but Change, which asks the coordinator.
type Run interface {
	// Info describes the run; it may wait until that has begun.
	Info() troupe.Info
	// Subscribe gives what happens from now on.
	Subscribe() *troupe.Subscription
	Status() troupe.Status
	// Record has the actions of the steps that begin within a time recorded, and Actions are those
	// of the step under way.
	Record(d time.Duration)
	Actions() troupe.Actions
	Change(c troupe.Change) error
	// Wait waits for the run's end.
	Wait() (troupe.Result, error)
}
