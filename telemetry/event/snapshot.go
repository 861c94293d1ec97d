package event

import (
	"time"

	"github.com/troupe-ml/troupe/scheduler"
)

// Phase says what an order is for.
type Phase uint8

// The phases.
const (
	Train Phase = iota + 1
	Eval
)

func (p Phase) String() string {
	switch p {
	case Train:
		return "training"
	case Eval:
		return "validation"
	}
	return "no phase"
}

// Doing says what an actor is at.
type Doing uint8

// What an actor may be doing.
const (
	Idle     Doing = iota // nothing is asked of it
	Starting              // making or loading weights
	Running               // its device executes Action
	Waiting               // Action cannot start yet: see Wait
	Reducing              // sums up gradients
	Updating              // the optimizer's step
	Copying               // its state, for a checkpoint
	Reading               // data
	Writing               // a checkpoint, or the line of a step
	Paused
	Finished
	Failing
)

var doings = [...]string{"idle", "starting", "running", "waiting", "summing gradients", "updating weights", "copying state", "reading",
	"writing", "paused", "finished", "failed"}

func (d Doing) String() string { return doings[d] }

// Wait says what an actor waits for.
type Wait uint8

// What an actor may wait for.
const (
	WaitNothing    Wait = iota
	WaitActivation      // the output of Needs, a forward
	WaitGradient        // the output of Needs, a backward
	WaitTokens          // tokens or targets of Needs.Microbatch
	WaitCredit          // the consumer of Action's output has not taken earlier ones
	WaitTied            // another rank's gradient of a tied weight
	WaitOrder           // the next order
	WaitStages          // the stages' reports
	WaitDecision        // the scheduler's decision about the step
	WaitDisk            // something being written
	WaitRoom            // room for an output: the rank may hold no more
	WaitGroup           // another rank, in Collective
)

// Snapshot is what an actor is doing at a moment.
type Snapshot struct {
	Actor string
	Rank  int // of a stage, else −1
	Step  int64
	Phase Phase
	Doing Doing
	// The action that runs or is next, for a stage.
	Action scheduler.Action
	// What it waits for: the action whose output is missing, and the actor that
	// has to provide it. Held and Need count credits or reports.
	Wait       Wait
	Needs      scheduler.Action
	From       string
	Held, Need int
	// Collective is the one that the device waits in, of a stage that shares work with others.
	Collective string
	Since      time.Time
	// Host is the worker that the actor is in, "" for this process, and Heard when that was
	// heard of last.
	Host  string
	Heard time.Time
}

// Scheduler is the name of the actor that waits lead away from.
const Scheduler = "scheduler"
