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

// Events of a run, sent in order. json.Marshal writes them as engine run --json does, and DecodeEvent reads them:
// docs/events.md lists the keys.
type (
	// Event is a StepEvent, CheckpointEvent, StallEvent, PauseEvent, TextEvent, ChangeEvent, RestartEvent, ReplaceEvent, RegroupEvent or
	// WarningEvent, and for watchers and subscriptions an EndEvent. They are values, not pointers.
	Event = event.Event
	// StepEvent: a step ended. Step 0 is the validation before training. Its fields are those of telemetry.Record, with nil for
	// what was not measured:
	//
	//	Step                int
	//	TimeMS              int64    // Unix time of its end; 0: unknown
	//	Epoch               float64  // how often the training data has been used; 0: unknown
	//	Loss, MTPLoss       *float64 // mean over target tokens
	//	ValLoss             *float64 // only after a validation
	//	GradNorm, LR        *float64
	//	Targets, FullPct    *float64 // of documents: target tokens of the step, share of the context that they filled
	//	Tokens              int64    // of all steps so far
	//	TokensPerS, StepMS  *float64
	//	ShadowMS            *float64 // part of StepMS that waited for cluster.shadow
	//	BubblePct, PeakPct  *float64 // PeakPct: MFU
	//	PeakMemBytes        int64
	//	CPUCores            *float64
	//	Skipped             bool     // the update was not applied
	//	Update              string   // "kept", "rolled_back" or "waited", with pipeline.post_validation
	//	Metrics, ValMetrics map[string]float64
	//	ValLosses           map[string]float64 // of the sets in [[eval]], by name
	//
	// and
	//
	//	IdealBubblePct float64
	//	Trace          [][]ActionTime // by rank; nil: the step was not recorded
	//	Clocks         []event.Clock  // by rank, if ranks are in other processes
	StepEvent = event.StepEvent
	// CheckpointEvent: a checkpoint was written.
	//
	//	Step int64
	//	Dir  string
	//	Best bool // it has the lowest validation loss so far
	//	Took time.Duration
	//	Weights bool // it has no optimizer state, so the run does not resume from it
	CheckpointEvent = event.CheckpointEvent
	// StallEvent: the run made no progress for run.stall_after_s seconds.
	//
	//	Quiet  time.Duration
	//	Status Status
	StallEvent = event.StallEvent
	// PauseEvent: the run paused at the end of a step, or resumed.
	//
	//	Step   int64
	//	Paused bool // false: it resumed
	PauseEvent = event.PauseEvent
	// TextEvent: the model wrote a text at a validation (run.sample_tokens).
	//
	//	Step         int64
	//	Prompt, Text string
	TextEvent = event.TextEvent
	// ChangeEvent: a change was journaled, or was rejected. It has the fields of Change, a list of earlier learning rates that
	// it replaces, and
	//
	//	Err error // why it was rejected; nil: it was not
	ChangeEvent = event.ChangeEvent
)

// DecodeEvent reads a line of engine run --json, or the JSON of an event. The error is ErrEventKind for kinds that a later
// version has added. It ignores unknown keys. See event.Decode.
func DecodeEvent(line []byte) (Event, error) { return event.Decode(line) }

// EventKind returns the word for an event's kind, the value of the key "event" in its JSON, such as "step". "": it is no event.
func EventKind(e Event) string { return event.Kind(e) }

// ErrEventKind: the kind of an event is unknown. Skip the line.
var ErrEventKind = event.ErrKind

// DivergedError: the run failed because it skipped run.max_skipped_steps steps in a row.
type DivergedError = actors.DivergedError

// Change is a request to a run: to pause, to write a checkpoint or to stop at the end of a step,
// or to continue with another learning rate.
//
//	Kind      ChangeKind
//	Step      int64   // take effect after this step; 0: after the current one
//	LR, MinLR float64 // for ChangeRate: the peak and the floor; RateChange sets the default floor
type Change = event.Change

// ChangeKind is what a Change requests: a string, one of the constants below.
type ChangeKind = event.ChangeKind

// RateChange returns a change of the learning rate with the default floor: a tenth of the peak lr, as optimizer.min_lr.
// A Change without MinLR decays to 0.
func RateChange(lr float64) Change { return event.RateChange(lr) }

// The kinds of changes.
const (
	ChangePause      = event.ChangePause
	ChangeResume     = event.ChangeResume // also cancels scheduled pauses
	ChangeCheckpoint = event.ChangeCheckpoint
	ChangeStop       = event.ChangeStop
	ChangeRate       = event.ChangeRate
)

// Updates counts the steps of a run with pipeline.post_validation by their update: kept after
// a speculative update, rolled back, or waited for.
type Updates = event.Updates

// RestartEvent: a worker failed, and the run restarts automatically from its last checkpoint.
//
//	Err           error
//	Restart, Most int // the number of this restart, and cluster.max_restarts
//	Why           string // why the ranks were not replaced
type RestartEvent = event.RestartEvent

// ReplaceEvent: a worker failed, and another one computes its ranks now. The run continues after its last decided step: the other ranks
// have kept their weights and optimizer state.
//
//	Step  int64
//	Ranks []int // that were lost
//	Err   error
//	Source           string // where the ranks got their state: "replica" or "shadow"
//	Bytes, KeptBytes int64  // that the lost ranks read of it, and that all others did
//	// Since the failure was noticed: until the actors had ended, a worker was found, and all ranks had their weights.
//	Halted, Found, Loaded time.Duration
type ReplaceEvent = event.ReplaceEvent

// The sources of a replaced rank's state: a rank with the same weights, or the copy that another worker keeps (cluster.shadow).
const (
	FromReplica = event.FromReplica
	FromShadow  = event.FromShadow
)

// RegroupEvent: the run wrote a checkpoint and continues from it on other workers, without repeating a step.
//
//	Step    int64    // of the checkpoint
//	Leaving []string // workers that leave
//	Lost    []string // workers that have failed, whose ranks were saved from replicas or shadows
//	Free    []string // workers that had no ranks, and are used from now on
type RegroupEvent = event.RegroupEvent

// WarningEvent: something that a person should know, such as a damaged checkpoint
// that was skipped, or a checkpoint that could not be written and will be tried again.
//
//	Text string
type WarningEvent = event.WarningEvent

// Options are the settings of Start that are not in the configuration.
type Options struct {
	Fresh bool // start from scratch: the output folder must be empty
	// FromStep resumes from the checkpoint of this step and renames newer ones to ….superseded; 0: resume from
	// the newest.
	FromStep int
	// AcceptNewData resumes although the content of the data has changed.
	AcceptNewData bool
	Trace         bool // record the times of every action of every step, for StepEvent.Trace; run.trace_every does not matter then
	// System is the caller's actor system. The run's actors live in it until the run ends.
	// nil: the run makes its own. See actors.Spec.
	System *actor.ActorSystem
	// Watchers are actors of System that receive all events of the run as messages, and an EndEvent as
	// the last one. The sender is Run.PID. A slow watcher does not delay the run: it loses step
	// events, and a WarningEvent tells it how many. The mailboxes of watchers must be
	// unbounded. There is one other message: when LimitEvents/2 step events may still wait in a watcher's mailbox, the run
	// sends it an *actor.Touch, which protoactor answers for every actor. Ignore it.
	Watchers []*actor.PID
	Logger   *slog.Logger // logs the start and the end of the run; nil: no logging
	// Preparing is called with what a long part of the start is about to do, such as the reference model's pass over all answers, while
	// Start has not returned. A WarningEvent with the same text follows. It may be nil.
	Preparing func(text string)
	// Control makes the run listen on a Unix socket in its folder, which only processes of the same user may use. engine ps, status,
	// pause, resume, checkpoint, rate, stop and follow then see and steer the run by its folder. If the run can't listen, a
	// WarningEvent says so.
	Control bool
	// Requests are changes for the run to make from its start, such as the open ones of an earlier attempt: see
	// Run.Requests.
	Requests []Change
	// Hosts compute the run's ranks in other processes; nil: this process computes them. System is theirs then.
	Hosts Hosts
}

// Hosts choose the processes that compute a run's ranks. cluster.Coordinator.Hosts returns them; other programs cannot
// implement the interface.
type Hosts = plan.Hosts

// Info describes a run that has started.
type Info = event.Info

// Documents describe training on documents one by one, of which only a part is learned.
type Documents = event.Documents

// Packing describes sequences of several documents.
type Packing = event.Packing

// Piece is a part of a document.
type Piece = event.Piece

// Result is the outcome of a run.
type Result = event.Result

// SetupError: the configuration, the data or the output folder cannot be used for a
// run. If Start returns it, nothing was changed. Wait returns it
// if data turned out to be unusable during the run. Its field Err is the cause.
type SetupError = plan.SetupError

// ErrStep: the run can't stop at the step that a Change names.
var ErrStep = event.ErrStep

// ErrJournal: the run's journal of changes has no room for a Change.
var ErrJournal = event.ErrJournal

// ErrOutput: the output folder cannot be used for this run.
var ErrOutput = rundir.ErrFolder

// ErrMemory: the model does not fit the memory of the device.
var ErrMemory = plan.ErrMemory

// ErrNoWorkers: the cluster does not have enough free workers for the run. Start the run again
// when it has.
var ErrNoWorkers = plan.ErrNoRoom

// The limits of this package's queues and of snapshots.
const (
	// LimitEvents is the largest number of events that wait for a reader of Run.Events, or for a
	// watcher. At the limit, step events are dropped and counted; the
	// run does not wait.
	LimitEvents = feed.Limit
	// LimitRequests is the largest number of open changes of a run. At the limit, a
	// change that names a step or a learning rate is rejected.
	LimitRequests = requests.Limit
	// LimitSnapshots is the largest number of open snapshots of a run. Each holds all weights of the model.
	// A snapshot that several callers share counts once.
	LimitSnapshots = 4
	// LimitLiveTexts is the largest number of texts that a Live generates, or that wait for it.
	LimitLiveTexts = 64
	// snapshotTexts is the largest number of texts that are generated at once with the weights of one step.
	snapshotTexts = 8
	// idleSnapshot is how long the newest snapshot of a run is kept for the next caller after nobody
	// uses it any more.
	idleSnapshot = 10 * time.Second
	// touchAt is the number of step events without an acknowledgment at which a watcher is asked whether it has processed
	// them. A watcher that keeps up is asked rarely: the question is a message in its mailbox.
	touchAt = LimitEvents / 2
	// endPatience is how long a run's end waits until its actor has told the watchers.
	endPatience = 5 * time.Second
)

// Check checks whether this machine can run a configuration, without reading the data:
// the model, the layout, the schedule, the memory, and
// that the files exist. The error is a *SetupError.
func Check(cfg *config.Config) error {
	return setupError(attempt.Check(cfg))
}

// ReadData reads the data of a configuration as a new run would, without an output folder: every record is checked. The Info
// has what is known of the data, and warnings are those that the run would give. The error is a *SetupError.
func ReadData(cfg *config.Config) (info Info, warnings []string, err error) {
	info, warnings, err = attempt.ReadData(cfg)
	return info, warnings, setupError(err)
}

// CheckElsewhere is Check for other machines. It does not look at the devices of this machine: each rank has its own device
// with deviceBytes of memory for tensors; 0: do not check the memory.
func CheckElsewhere(cfg *config.Config, deviceBytes int64) error {
	return setupError(attempt.CheckElsewhere(cfg, deviceBytes))
}

func setupError(err error) error {
	if err != nil {
		return &SetupError{Err: err}
	}
	return nil
}
