package event

import (
	"time"

	"github.com/troupe-ml/troupe/telemetry"
)

// Event is something that happened in a run: a StepEvent, CheckpointEvent, WarningEvent, StallEvent, ChangeEvent,
// PauseEvent, TextEvent, RestartEvent, ReplaceEvent or RegroupEvent. A watcher also gets an EndEvent, as the last one.
// Each marshals to one JSON object with the key "event", as in the output of engine run --json (docs/events.md), which
// also has a StartEvent, SampleEvent and SubmittedEvent. Decode reads them all.
type Event = any

// StepEvent reports a finished step. Step 0 is the validation before training.
//
// Its Record has the metrics: Loss, ValLoss, LR, GradNorm, TokensPerS, StepMS and others.
type StepEvent struct {
	telemetry.Record
	IdealBubblePct float64        // bubble of the schedule's table if all actions of a kind take equally long
	Trace          [][]ActionTime // actions by rank, in times of this process's clock; nil: the step was not recorded
	Clocks         []Clock        // by rank: the clock offsets that Trace is corrected by; nil: all ranks are in this process
}

// CheckpointEvent reports a checkpoint that was written.
type CheckpointEvent struct {
	Step int64         `json:"step"`
	Dir  string        `json:"dir"`
	Best bool          `json:"best"`
	Took time.Duration `json:"took_ms"`
	// Weights means that it has no optimizer state (run.best = "weights"), so the run does not resume from it.
	Weights bool `json:"weights_only,omitempty"`
}

// WarningEvent reports a problem that the run survives, such as a failed write of a checkpoint, which the run tries
// again.
type WarningEvent struct {
	Text string `json:"text"`
}

// StallEvent reports that the run has made no progress for run.stall_after_s.
type StallEvent struct {
	Quiet  time.Duration `json:"quiet_s"`
	Status Status        `json:"status"`
}

// ChangeEvent reports that the run accepted a change, which is in effect or will be after its step. With Err the run
// refused it.
type ChangeEvent struct {
	Change
	// Learning rates that the change replaces: they were to take effect at once, in steps that the run has lost since.
	Cancelled []Change
	Err       error
}

// PauseEvent reports that the run paused after a step or, if Paused is false, resumed.
type PauseEvent struct {
	Step   int64 `json:"step"`
	Paused bool  `json:"paused"`
}

// TextEvent reports a text that the model wrote at a validation (run.sample_tokens). samples.jsonl has it, too.
type TextEvent struct {
	Step   int64  `json:"step"`
	Prompt string `json:"prompt"`
	Text   string `json:"sample"` // without the prompt
}

// RestartEvent reports that a process that computed ranks failed. The run restarts from its last checkpoint.
type RestartEvent struct {
	Err     error `json:"error"`        // names the process, its ranks and what they were doing
	Restart int   `json:"restart"`      // number of this restart since the last new checkpoint
	Most    int   `json:"max_restarts"` // the limit, cluster.max_restarts
	// Why says why no other process could take the ranks without a restart; "": the failure was not that of a process.
	Why string `json:"why,omitempty"`
}

// ReplaceEvent reports that a process that computed ranks failed, and that another process computes them now. The other ranks have kept
// their weights and optimizer state, and the new ones have them from where Source says. The run continues after its last decided step.
type ReplaceEvent struct {
	Step  int64 `json:"step"`  // the last decided step
	Ranks []int `json:"ranks"` // those that were lost
	Err   error `json:"error"` // names the process, its ranks and what they were doing
	// Source is where the ranks got their weights and optimizer state: FromReplica or FromShadow.
	Source string `json:"source"`
	// Bytes is what they read of it, and KeptBytes what all other ranks read, which have kept theirs.
	Bytes     int64 `json:"bytes"`
	KeptBytes int64 `json:"kept_bytes"`
	// The times since the failure was noticed: until all actors had ended, until another process was chosen, and until every rank had its
	// weights.
	Halted time.Duration `json:"-"`
	Found  time.Duration `json:"-"`
	Loaded time.Duration `json:"-"`
}

// The sources of a replaced rank's state.
const (
	FromReplica = "replica" // a rank with the same weights
	FromShadow  = "shadow"  // the copy that another process keeps (cluster.shadow)
)

// RegroupEvent reports that the run wrote a checkpoint and continues from it on other workers, without repeating a step:
// a worker leaves in order, or a free worker makes the run faster.
type RegroupEvent struct {
	Step    int64    `json:"step"`              // of the checkpoint
	Leaving []string `json:"leaving,omitempty"` // workers that leave
	Free    []string `json:"free,omitempty"`    // workers that had no ranks, and are used from now on
	Lost    []string `json:"lost,omitempty"`    // workers that have failed, whose ranks were saved from replicas or shadows
}

// EndEvent is a watcher's last event: the result of the run, as Run.Wait returns it. A reader of Run.Events finds the
// channel closed instead.
type EndEvent struct {
	Result Result
	Err    error
}

// StartEvent is the first line of engine run --json. A run does not send it: Run.Info has its contents.
type StartEvent struct{ Info }

// SampleEvent is the text that engine run --json --sample generates after the training. A run does not send it.
type SampleEvent struct {
	Text         string `json:"text"`
	Context      int    `json:"context"`       // the largest number of tokens that the model sees
	PromptTokens int    `json:"prompt_tokens"` // of the whole prompt
	PromptCut    int    `json:"prompt_cut"`    // tokens of the prompt that did not fit the context
	Tokens       int    `json:"tokens"`        // generated tokens
	WindowMoves  int    `json:"window_moves"`  // how often the context was full
}

// SubmittedEvent is the line of engine run --cluster --detach --json. A run does not send it.
type SubmittedEvent struct {
	Run string `json:"run"` // the run's id
}
