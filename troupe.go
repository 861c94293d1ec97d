package troupe

import (
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/attempt"
	"github.com/troupe-ml/troupe/internal/run/feed"
	"github.com/troupe-ml/troupe/internal/run/requests"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Events of a run, sent in order.
type (
	// Event is one of the types below.
	Event = event.Event
	// StepEvent: a step ended; Step 0 is the validation before training.
	StepEvent = event.StepEvent
	// CheckpointEvent: a checkpoint was written.
	CheckpointEvent = event.CheckpointEvent
	// StallEvent: nothing has moved for run.stall_after_s.
	StallEvent = event.StallEvent
	// PauseEvent: the run paused at a step's end, or goes on.
	PauseEvent = event.PauseEvent
	// ChangeEvent: a change is journalled, or was refused.
	ChangeEvent = event.ChangeEvent
)

// DivergedError ends a run that skipped run.max_skipped_steps steps in a row.
type DivergedError = actors.DivergedError

// Change is a request to a run: to pause, write a checkpoint or stop when a step has ended,
// or to go on with another learning rate.
type Change = event.Change

// ChangeKind says what is to happen.
type ChangeKind = event.ChangeKind

// The kinds of changes.
const (
	ChangePause      = event.ChangePause
	ChangeResume     = event.ChangeResume
	ChangeCheckpoint = event.ChangeCheckpoint
	ChangeStop       = event.ChangeStop
	ChangeRate       = event.ChangeRate
)

// Updates counts steps by how their update was made, where pipeline.post_validation is
// on: applied speculatively and kept, or rolled back, or waited for.
type Updates = event.Updates

// RestartEvent: a process that computed ranks was lost, and the run goes on by itself.
type RestartEvent = event.RestartEvent

// WarningEvent: something a person should know, such as a damaged checkpoint
// that was passed over, or one that could not be written and is tried again.
type WarningEvent = event.WarningEvent

// Options are what a configuration does not say.
type Options struct {
	Fresh bool // start from scratch: the output folder must be empty
	// FromStep goes on from the checkpoint of a step, and sets newer ones aside; 0: from
	// the newest.
	FromStep int
	// AcceptNewData goes on although the data's content has changed.
	AcceptNewData bool
	Trace         bool // time every action of every step, whatever run.trace_every says: see StepEvent.Trace
	// System, if there is one, is an actor system of the caller's, in which the run's
	// actors live while it does; nil: the run has one of its own. See actors.Spec.
	System *actor.ActorSystem
	// Watchers are actors of System that get the run's events as messages, from the first on,
	// with Run.PID as the sender, and in the end an EndEvent. None holds the run up: one that is
	// too slow loses step events, and is told how many by a WarningEvent. Their mailboxes must have no
	// bound of their own.
	Watchers []*actor.PID
	Logger   *slog.Logger // told how the run begins and ends; nil: nobody is
	// Requests were asked of the run before it begins, or begins again: it is given them before its
	// first order. See Run.Requests.
	Requests []Change
	// Hosts, if there are any, compute the run's ranks in other processes: package cluster has
	// them. System is theirs then.
	Hosts plan.Hosts
}

// Info describes a run that has been set up.
type Info = event.Info

// Result is how a run ended.
type Result = event.Result

// SetupError says that the configuration, the data or the output folder is not
// what a run needs. When Start returns it, nothing was changed. Wait returns it
// for data that turned out to be unusable on the way. Its field Err is the cause.
type SetupError = plan.SetupError

// ErrOutput: the output folder cannot be used for this run.
var ErrOutput = rundir.ErrFolder

// ErrMemory: the model does not fit this machine's memory.
var ErrMemory = plan.ErrMemory

// ErrNoWorkers: the processes that a run over a cluster needs are not there. When they are,
// it can continue.
var ErrNoWorkers = plan.ErrNoRoom

// The bounds of this package's queues, and of what it holds for others.
const (
	// LimitEvents bounds the events that wait for a reader of Run.Events, and those that a
	// watcher has not taken yet. When it is reached, step events are dropped and counted; the
	// run doesn't wait.
	LimitEvents = feed.Limit
	// LimitRequests bounds the changes that were asked of a run and are not done yet. At the limit a
	// change that names a step, or a learning rate, is refused.
	LimitRequests = requests.Limit
	// LimitSnapshots is how many snapshots of a run, each with all weights of the model, may be
	// there at a time. Those who share one count once.
	LimitSnapshots = 4
	// idleSnapshot is how long the newest snapshot of a run stays for the next one who wants
	// one, when nobody uses it.
	idleSnapshot = 10 * time.Second
	// touchEvery is after how many step events a watcher is asked whether it has taken them.
	touchEvery = 64
	// endPatience is how long the end of a run waits for its actor to tell the watchers.
	endPatience = 5 * time.Second
)

// Check says whether a configuration can be run, as far as that can be told
// without reading the data: the model, the layout, the schedule, the memory, and
// that the files exist.
func Check(cfg *config.Config) error {
	return setupError(attempt.Check(cfg))
}

// CheckElsewhere is Check for other machines than this one: no device is looked for here, and each rank has one of its
// own with so many bytes of memory for its tensors; 0: memory isn't judged.
func CheckElsewhere(cfg *config.Config, deviceBytes int64) error {
	return setupError(attempt.CheckElsewhere(cfg, deviceBytes))
}

func setupError(err error) error {
	if err != nil {
		return &SetupError{Err: err}
	}
	return nil
}
