package event

import (
	"time"

	"github.com/troupe-ml/troupe/scheduler"
)

// Phase is the purpose of an order.
type Phase uint8

// The phases.
const (
	Train Phase = iota + 1
	Eval
)

var phases = [...]string{"", Train: "training", Eval: "validation"}

func (p Phase) String() string {
	if p == 0 {
		return "no phase"
	}
	return wordAt(phases[:], p)
}

// Doing is the activity of an actor.
type Doing uint8

// The activities of an actor.
const (
	Idle     Doing = iota // it has nothing to do
	Starting              // initializing or loading weights
	Running               // its device executes Action
	Waiting               // Action cannot start yet: see Wait
	Reducing              // summing gradients
	Updating              // running the optimizer
	Copying               // copying its state for a checkpoint
	Reading               // reading data
	Writing               // writing a checkpoint, or the metrics of a step
	Paused
	Finished
	Failing
)

var doings = [...]string{"idle", "starting", "running", "waiting", "summing gradients", "updating weights", "copying state", "reading",
	"writing", "paused", "finished", "failed"}

func (d Doing) String() string { return wordAt(doings[:], d) }

// Wait is what an actor waits for.
type Wait uint8

// What an actor may wait for.
const (
	WaitNothing    Wait = iota
	WaitActivation      // the output of the forward Needs
	WaitGradient        // the output of the backward Needs
	WaitTokens          // the tokens or targets of Needs.Microbatch
	WaitCredit          // the receiver of Action's output has not consumed earlier outputs
	WaitTied            // the gradient of a tied weight from another rank
	WaitOrder           // the next order
	WaitStages          // reports from stages
	WaitDecision        // the scheduler's decision on the step
	WaitDisk            // a write to disk
	WaitRoom            // room for an output: the rank is at its limit
	WaitGroup           // another rank of the group, in Collective
	WaitState           // the weights and optimizer state of another rank, for its shadow
	WaitShadow          // the shadows, which have not got all gradients of the step
)

var waits = [...]string{WaitNothing: "", WaitActivation: "activation", WaitGradient: "gradient", WaitTokens: "tokens",
	WaitCredit: "credit", WaitTied: "tied gradient", WaitOrder: "order", WaitStages: "stages", WaitDecision: "decision", WaitDisk: "disk",
	WaitRoom: "room", WaitGroup: "group", WaitState: "state", WaitShadow: "shadow"}

// Snapshot is the state of an actor at a moment.
type Snapshot struct {
	Actor string
	Rank  int // rank of a stage; −1: the actor is no stage
	Step  int64
	Phase Phase
	Doing Doing
	// Action is the action of a stage that runs or is next.
	Action scheduler.Action
	// Wait is what the actor waits for, Needs the action whose output is missing, and From the actor that must
	// provide it. Held and Need count credits or reports.
	Wait       Wait
	Needs      scheduler.Action
	From       string
	Held, Need int
	// Collective is the collective operation that the stage's device waits in.
	Collective string
	Since      time.Time
	// Host is the worker that runs the actor, "" for this process. Heard is the time of the worker's last report.
	Host  string
	Heard time.Time
}

// Scheduler is the name of the actor at which a chain of waits begins.
const Scheduler = "scheduler"
