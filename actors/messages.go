package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// Header is on every message of a run.
type Header struct {
	Run     uuid.UUID // the training run, through all its attempts
	Attempt uuid.UUID // this attempt at it
	Step    int64     // during training the finished updates + 1, otherwise the finished updates
	Order   int64     // number of the order this belongs to, from 1
}

// A message of a run may find that its receiver has stopped. At the end of a run that is not an
// error, and protoactor need not log it in a caller's system from a goroutine that outlives the
// run.

func (Header) IgnoreDeadLetterLogging()      {}
func (Request) IgnoreDeadLetterLogging()     {}
func (kill) IgnoreDeadLetterLogging()        {}
func (overdue) IgnoreDeadLetterLogging()     {}
func (halt) IgnoreDeadLetterLogging()        {}
func (*halted) IgnoreDeadLetterLogging()     {}
func (leave) IgnoreDeadLetterLogging()       {}
func (*left) IgnoreDeadLetterLogging()       {}
func (*lost) IgnoreDeadLetterLogging()       {}
func (*built) IgnoreDeadLetterLogging()      {}
func (*deviceDone) IgnoreDeadLetterLogging() {}
func (*publish) IgnoreDeadLetterLogging()    {}
func (*lastState) IgnoreDeadLetterLogging()  {}

// Peers tells an actor its peers.
type Peers struct {
	Header
	Scheduler, Loader, Checkpoint, Metrics *actor.PID
	Stages                                 []*actor.PID
}

// Order is a stage's work for one step: its row of the table.
type Order struct {
	Header
	Phase event.Phase
	// Replica is the rank's replica. Table is the replica's table; its first microbatch is
	// microbatch First of the step; nil: the replica has no microbatch of this phase.
	Replica int
	Table   *scheduler.Table
	First   int
	// Credits limit what may be in flight on each edge.
	Credits scheduler.Credits
	// Trace requests the time of every action, Norms the norms of the weights.
	Trace, Norms bool
	// Speculative, if not nil, says that the order comes before the decision about the previous
	// step: it is the update that the step is predicted to make.
	Speculative *stages.Update
}

// row returns a stage's part of the order.
func (m *Order) row(stage int) []scheduler.Action {
	if m.Table == nil {
		return nil
	}
	return m.Table.Ranks[stage]
}

// Transfer carries an output to the stage that consumes it: an activation to
// chunk To, or the gradient of To's output. The message owns the tensor.
type Transfer struct {
	Header
	Kind       scheduler.EdgeKind
	To         int32
	Rank       int32 // rank that has chunk To
	Microbatch int32
	Slot       int32            // index among the tensors that To takes
	Part       int32            // index of the piece, if the tensor comes from several ranks
	Extent     Extent           // extent of the microbatch, with an activation
	Tensor     tensorops.Tensor // invalid: the rank gets the numbers within its tensor group
}

// Credit returns a credit of the edge that starts at chunk Edge: the edge to its neighbor or, if
// Skip is not 0, skip number Skip of the table, counted from 1.
type Credit struct {
	Header
	Kind scheduler.EdgeKind
	Edge int32
	Skip int32
}

// DataRequest asks the loader for a microbatch.
type DataRequest struct {
	Header
	Phase           event.Phase
	Chunk           int32
	Microbatch      int32
	Tokens, Targets bool
	Starts          bool     // where each position's document starts, in a packed run
	Fields          []string // fields of a sample, if the data are not tokens
	ReplyTo         *actor.PID
}

// Data answers a DataRequest. The receiver calls Batch.Release when the device
// has read it.
type Data struct {
	Header
	Chunk      int32
	Microbatch int32
	Batch      *Batch
}

// owner is a message that owns memory. The receiver of the message owns the memory; a message
// without a receiver is released.
type owner interface{ release() }

func (m *Transfer) release()     { m.Tensor.Release() }
func (m *Data) release()         { m.Batch.Release() }
func (m *TiedGradient) release() { m.Grad.Grad.Release() }
func (m *Weight) release()       { m.Tensor.Release() }
func (m *RankState) release() {
	if !m.lent {
		m.Tensor.Release()
	}
}
func (m *StepGradient) release() {
	for _, g := range m.Grads {
		if !m.lent {
			g.Grad.Release()
		}
	}
}
func (m *StageState) release() {
	if !m.Kept && m.Copies != nil {
		m.Copies.Close()
	}
}

// Loss is the loss of a microbatch.
type Loss struct {
	Microbatch int
	stages.Report
	Outputs []stages.Output // for a run that collects outputs
}

// TiedGradient carries a rank's part of a tied weight's gradient to another rank that
// uses the weight. The message owns the tensor.
type TiedGradient struct {
	Header
	From int32 // the sending rank
	Grad stages.TiedGrad
}

// StageDone says that a stage has finished its order; after training, that its gradients are
// summed.
type StageDone struct {
	Header
	Rank   int
	Losses []Loss // from the rank that computes them
	Norms  []stages.Norm
	// Weights are the norms of the weights used in this step, if the order requests them.
	Weights []stages.Norm
	Routers []stages.RouterStats // of layers with experts
	Busy    time.Duration        // device time since the order arrived or, if it came ahead, since the last report
	Trace   []event.ActionTime
}

// Apply is the decision about a step.
type Apply struct {
	Header
	Skip   bool // drop the gradients and keep the weights
	Update stages.Update
	Kept   bool // the update is the one predicted by the next order, if it came ahead
	// Abort is the number of an order that came ahead and must be dropped; 0: none.
	Abort int64
}

// Applied says that a stage has updated its weights.
type Applied struct {
	Header
	Rank int
}

// SaveState asks a stage for its weights and optimizer state, which it sends to the checkpoint
// actor. With Keep the stage keeps the numbers until a WriteState, and then until a SendState or a
// DropState. With Weights it leaves out the optimizer state.
type SaveState struct {
	Header
	Keep, Weights bool
}

// StageState is a stage's part of a checkpoint.
type StageState struct {
	Header
	Rank   int
	Saved  []stages.Saved
	Copies tensorops.Arena // arena of their memory, closed after the write; nil: the memory is the stage's (Spec.SaveInPlace)
	Kept   bool            // the stage keeps the numbers, in another process
}

// WriteState tells a stage where to write what it keeps: a place for each tensor, in the order of
// the tensors.
type WriteState struct {
	Header
	Places []trainstate.Place
}

// StateWritten answers WriteState, with the CRC-32C of each tensor.
type StateWritten struct {
	Header
	Rank int
	Sums []uint32
	Err  error
}

// SendState asks for a StageState with the numbers that the stage has kept; DropState says that
// they are not needed any more.
type (
	SendState struct{ Header }
	DropState struct{ Header }
)

// BeginSave tells the checkpoint actor the contents of the next checkpoint. With Weights it is the
// weights alone of the best validation: see Spec.WriteBest.
type BeginSave struct {
	Header
	State         trainstate.State
	Best, Weights bool
}

// StateCopied says that every stage's state has reached the checkpoint actor, so training may
// continue.
type StateCopied struct{ Header }

// notSaved says that a checkpoint could not be written, for a reason that may pass.
type notSaved struct {
	Header
	Best, Weights bool
	Err           error
}

// Saved says that a checkpoint was written.
type Saved struct {
	Header
	Dir           string
	Best, Weights bool
	Took          time.Duration
}

// StageReady says that a stage has its weights, and the shadows that its actor holds, too.
type StageReady struct {
	Header
	Rank int
	Read int64 // bytes of its state that it has read from another rank or its shadow
}

// StepGradient carries finished gradients of a rank to the actor that holds its shadow. One message or several have all of a step.
type StepGradient struct {
	Header
	Rank  int
	Grads []stages.Gradient
	lent  bool // the tensors are the stage's; otherwise the message owns them
}

// Shadowed says that a rank's gradients of a step have reached its shadow.
type Shadowed struct {
	Header
	Rank int
}

// recorded tells the scheduler that the step's line is in metrics.jsonl.
type recorded struct{ Header }

// Failed tells the supervisor that an actor cannot continue.
type Failed struct {
	Header
	Actor string
	Err   error
}

// finished tells the supervisor that the run has reached its end.
type finished struct {
	Header
	stopped, early bool
	regroup        *event.RegroupEvent // nil: the run has ended
	err            error
}

// lastState tells the supervisor, when the scheduler stops, the state of the run.
type lastState struct {
	state   trainstate.State
	updates event.Updates
	carry   *Carry // nil: the stages are not kept
}

// halt tells a stage to start nothing more. Its answer, halted, comes when its device is idle; from
// then on it sends no tensors.
type (
	halt   struct{}
	halted struct{ rank int }
)

// leave ends a stage in another process after it has halted; left confirms it. With keep the stage outlives the attempt.
type (
	leave struct{ keep bool }
	left  struct{ rank int }
)

// lost tells the supervisor that the process of some ranks failed or disconnected. With leaves it is still there, and its stages outlive
// the attempt as others do.
type lost struct {
	ranks  []int
	err    error
	leaves bool
}

// ReadWeight asks for a stored tensor of a parameter, or a part of its optimizer state.
type ReadWeight struct {
	Header
	Request     uint64
	Param, Part string
	ReplyTo     *actor.PID
}

// ReadState asks a stage for a tensor of a parameter, or a part of its optimizer state, for a rank that has the same ones, or for its
// shadow. The stage answers when it has its weights. No order may be in progress.
type ReadState struct {
	Header
	Request     uint64
	Rank        int // of the stage
	Shadow      int // if not 0, the tensor of a shadow that the stage's actor holds is wanted: 1 + the rank that asks
	Param, Part string
	ReplyTo     *actor.PID
}

// RankState answers a ReadState.
type RankState struct {
	Header
	Request uint64
	Rank    int // of the stage that answers
	Shadow  int // as in ReadState
	Tensor  tensorops.Tensor
	lent    bool // the tensor is the stage's; otherwise the message owns it
	placed  bool // the numbers are where they were wanted, and there is no tensor
	Err     error
}

// Weight answers a ReadWeight. The message owns the tensor.
type Weight struct {
	Header
	Request uint64
	Param   string // name in the process that has it
	Tensor  tensorops.Tensor
	placed  bool // as in RankState
	Err     error
}
