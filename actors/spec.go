package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// Compute is the interface of the stage that a stage actor runs; *stages.Stage implements it. Its
// methods record and never wait.
type Compute interface {
	stages.Passes
	NeedsTokens(chunk int) bool
	NeedsTargets(chunk int) bool
	NeedsStarts(chunk int) bool
	Fields(chunk int) []string
	ComputesLoss(chunk int) bool
	Finish(chunk, index int)
	Verify(chunk int) error
	Report(chunk, index int) stages.Report
	Outputs(chunk, index int) []stages.Output
	TiedGrads(l *tensorops.List, to []stages.TensorPlace) []stages.TiedGrad
	WantsTied() int
	TakeTied(stages.TiedGrad) error
	GradNorms(l *tensorops.List)
	Norms(to []stages.Norm) []stages.Norm
	Apply(l *tensorops.List, u stages.Update)
	ClearGrads(l *tensorops.List)
	SpeculativeApply(l *tensorops.List, u stages.Update)
	Commit(l *tensorops.List)
	Rollback(l *tensorops.List, u *stages.Update)
	AbortMicrobatches(l *tensorops.List)
	Save(l *tensorops.List, copies tensorops.Arena) []stages.Saved
	Close() error
}

// WeightSaver is a Compute that can save its weights without the optimizer state.
type WeightSaver interface {
	SaveWeights(l *tensorops.List, copies tensorops.Arena) []stages.Saved
}

// Queuer is a Compute that can record a pass while earlier ones are still running.
type Queuer interface {
	// Queue reports whether it can; then all following passes may be recorded this way.
	Queue() bool
	// ReportLater is Report for the forward that was recorded last; call the returned function
	// after its completion.
	ReportLater(chunk, index int) func() stages.Report
}

// PartTimer is a Compute that can time the parts of its actions, which exchanges of tokens with the ranks of their experts
// separate.
type PartTimer interface {
	// BeginParts times the parts of an action of a type, which is recorded next, until EndParts. nil: it has no parts.
	BeginParts(l *tensorops.List, t scheduler.Type) *stages.PartTimes
	EndParts(l *tensorops.List)
}

// Spec is everything that a run needs. Its functions and interfaces are the run's only access to
// files.
type Spec struct {
	Run uuid.UUID
	// Attempt is the id of this attempt at the run; zero: Start makes one.
	Attempt uuid.UUID
	Device  tensorops.Device
	// Devices, if not empty, replaces Device: one for each rank. Ranks with the same device,
	// compared with ==, hand over their tensors without a copy.
	Devices []tensorops.Device

	// Hosts, if not empty, holds the address of each rank's process; "": this process. StartStages
	// starts the stages there.
	Hosts []string
	// Build makes a rank's stage on its stream, with its weights. It runs in its own goroutine, for
	// which the end of the run waits.
	Build func(rank int, s tensorops.Stream) (Compute, error)
	// Load gives a stage its weights that is in Adopt without them; see Prepare.
	Load func(rank int, stage Compute) error
	// Weights are the stored tensors that stages in other processes request; nil: none.
	Weights *StoredWeights
	// Keep decides, when the processes of some ranks are lost, whether the stages of the others outlive the attempt, so that the next one
	// can adopt them; its error says why they do not; nil: they never do. Other stages than a Resetter never do.
	Keep func(lost []int) error
	// Carry is the progress of an attempt whose stages this one adopts, in place of Start; nil: it adopts none. Adopt are the stages in
	// this process. Rejoin gives an adopted stage the groups of this attempt; nil: there are none. Target is what they continue from; Start
	// takes it from Carry.
	Carry  *Carry
	Adopt  []*Kept
	Rejoin func(rank int, stage Compute) error
	Target Target
	// Shadows says for each rank with which other rank its shadow is, in another process; −1: it has none; nil: no rank has one.
	// BuildShadow makes the shadow of a rank on a stream.
	Shadows     []int
	BuildShadow func(rank int, s tensorops.Stream) (*stages.Shadow, error)
	// Rescue makes an attempt with a Carry only write a checkpoint of the state that it continues from, and end with this event. Ranks
	// that are not in Adopt have no stage if their shadow, or a kept stage with the same state, is in this process: they save from it.
	// Frozen are the weights that such a checkpoint takes from elsewhere, because shadows have only trained ones; nil: none are saved.
	Rescue *event.RegroupEvent
	Frozen *FrozenWeights
	// Reader, if not nil, is the one that Build uses for the state of ranks in this process. StartStages has its own.
	Reader *WeightReader
	// Read returns the bytes that a rank here has read of its state from another rank or its shadow; nil: none.
	Read func(rank int) int64
	// Ready is called once, when every stage has its weights, with the bytes that each rank has read of them as Read says. The event that it
	// returns, if any, is published before those of the steps.
	Ready func(read []int64) event.Event
	// TiedRanks are the ranks of the pipeline that use a tied weight. If there are several, each
	// sends its gradient to all others.
	TiedRanks []int

	// Routes says, for each chunk, where its tensors come from and go to. The tables must have the
	// resulting skips (Skips). nil: one tensor goes from each chunk to the next.
	Routes    []stages.Route
	Table     *scheduler.Table // one training step
	EvalTable *scheduler.Table // one validation; nil: none
	// Grid, if not nil, numbers the ranks; otherwise each rank is a stage of a single pipeline.
	// With several replicas, Replicas has the tables of each, and Table and EvalTable are those of
	// the replica with the most microbatches.
	Grid     *grid.Grid
	Replicas []Replica
	// Edge means that data, and the weights of the first stage, whose names are EdgeParams, must
	// not leave this process and those of that stage's ranks.
	Edge       bool
	EdgeParams map[string]bool
	// Readers says for each chunk whether its layers read data. Holders says for each parameter
	// which stages of the pipeline use it. No other process gets data or stored weights. nil: every
	// process with ranks does.
	Readers []bool
	Holders map[string][]int
	// Copies returns the ranks that have the same weights and optimizer state as a rank, with itself; nil: no rank has.
	Copies func(rank int) []int
	// Experts reports whether a parameter has the matrices of experts, of which the ranks of an expert group of the grid have
	// different parts; nil: none has.
	Experts func(param int) bool
	// Slices means that each rank of a tensor group has a range of the positions of tensors between
	// chunks. Way says how these get from one group to another.
	Slices bool
	Way    grid.Way
	// SplitState means that each replica of a stage has a part of the optimizer state, or also of
	// the weights (ZeRO).
	SplitState bool
	// FailGroups ends all waits of this process's ranks in their groups, present and future; nil:
	// there are no groups.
	FailGroups func(error)
	// GroupStatus says what a rank of this process waits for in its groups; nil: there are none.
	GroupStatus func(rank int) (GroupWait, bool)
	// CutLinks returns the links between processes on which nothing arrives; nil: unknown.
	CutLinks func() []event.CutLink
	// PostValidate lets stages apply a step's update speculatively and start the next step before
	// all have reported; a wrong update is rolled back.
	PostValidate bool
	// TraceEvery is the interval, in steps, at which a step's actions are timed and reported; 0:
	// never.
	TraceEvery int64

	Data Source
	// EvalSets are further validation sets, whose windows follow those of Data. If Data has none, the first set decides which weights
	// are the best.
	EvalSets       []EvalSet
	MicrobatchSize int // sequences of a microbatch
	Context        int // positions of a training sequence
	Multiple       int // the positions of every microbatch must be a multiple of it; 0: no restriction
	Sequences      int // sequences in a step
	// Packed means that sequences hold several documents: Data is a PackedSource.
	Packed bool
	// EpochWindows is the number of sequences in the training data; 0: unknown.
	EpochWindows int64
	// Recompute says whether a rank of the pipeline recomputes a microbatch's activations.
	Recompute func(rank, microbatch int) bool
	// HeadLater says, for a step with the given number of microbatches, whether the weight gradient
	// of a microbatch's head waits for its W; nil: it never does.
	HeadLater func(microbatches, microbatch int) bool

	Rate     stages.Rate
	ClipNorm float64 // 0: none

	Start           trainstate.State // Step 0: a fresh start
	Steps           int64
	EvalEvery       int64 // 0: before the first step and after the last
	Patience        int64 // end the run after this many validations without a better loss; 0: never
	CheckpointEvery int64 // in steps; 0: at the end

	// WriteCheckpoint writes a checkpoint and returns its folder; nil: none are written. It may
	// read the tensors until it returns.
	WriteCheckpoint func(ctx context.Context, state trainstate.State, saved []stages.Saved, best bool) (string, error)
	// WriteBest writes the weights of the best validation so far and returns their folder, if no
	// checkpoint is due at its step; nil: such a validation makes a checkpoint due. NoBest: it writes
	// nothing.
	WriteBest func(ctx context.Context, state trainstate.State, saved []stages.Saved) (string, error)
	NoBest    bool
	// Shares says for each rank whether its process sees the run's folder, so that its stage can
	// write its part of a checkpoint itself; nil: no process does. WriteShared writes such
	// checkpoints: tensors without Data are written by other processes.
	Shares      []bool
	WriteShared func(ctx context.Context, state trainstate.State, saved []stages.Saved, best bool, others trainstate.Others) (string, error)
	// MayPass reports whether an error of writing a checkpoint, or a line of the run's files, may
	// pass, so that the write is attempted again; nil: no error may, and the attempt fails.
	MayPass func(error) bool
	// SaveInPlace writes checkpoints from the tensors themselves and not from copies, while the
	// next step waits. The host must be able to address the memory of all stages, and all must be
	// in this process.
	SaveInPlace bool
	// LastInPlace does the same for the checkpoint of the last step, after which nothing waits.
	LastInPlace bool
	// WriteOwn writes the part of a stage in another process than the checkpoint actor's; nil: not
	// possible. It returns the CRC-32C of each tensor.
	WriteOwn func(ctx context.Context, step int64, places []trainstate.Place, saved []stages.Saved) ([]uint32, error)
	// MaxSkipped ends the run with a DivergedError after this many consecutive steps without a
	// finite loss and gradient; 0: never.
	MaxSkipped int64
	// Requests were made before this attempt and are not complete: they are handled before the
	// first order, and later ones through Run.Ask. RequestEvents report their state.
	Requests []Request
	// Changes were journaled by earlier attempts. WriteChange journals one durably, before it takes
	// effect; nil: no journal. The error event.ErrJournal refuses the change; others end the run.
	Changes     []event.Change
	WriteChange func(event.Change) error
	// WriteRecord appends to metrics.jsonl; nil: nothing is written.
	WriteRecord func(telemetry.Record) error
	// WriteTrace writes the times of a step's actions, and the clocks by which they were corrected
	// (see StepEvent); nil: nothing is written.
	WriteTrace func(step int64, trace [][]event.ActionTime, clocks []event.Clock) error
	// WriteStats writes norms by parameter, every StatsEvery steps; nil or 0: they are not
	// computed.
	WriteStats func(Norms) error
	StatsEvery int64
	// PeakTokensPerS is the number of tokens a second that would use the processor's peak of
	// operations; 0: unknown.
	PeakTokensPerS float64
	// CopyAtEval is called after a validation. It returns the memory for a copy of the validated
	// weights, by a parameter's Index, and a function to call when the copies are complete. That
	// function gets place, which does the remaining copying if it is not nil; it must not block.
	// nil, or no memory: no copy. All stages must be in this process. Training continues when each
	// stage has copied its weights.
	CopyAtEval func(step int64) (to func(param int) []float32, done func(place func() error))
	// Clock returns the offset of a rank's clock in another process to this one's; nil: no offset.
	Clock func(rank int) event.Clock
	// Wall returns what this process's clock shows at a time that is sent to another process; nil:
	// the time itself. A test uses it to make the clock wrong.
	Wall func(time.Time) time.Time
	// Collect makes a validation collect the outputs of the model's layers, for OutputEvents.
	Collect bool
	// OnEvent receives the run's events, from the metrics actor and the watchdog. It must not block
	// for long: training does not wait for it, but further events do.
	OnEvent func(event.Event)

	StallAfter time.Duration // 0: no watchdog
	// HaltWithin is how long a run that ends with an error waits for stages in other processes to
	// halt; 0: 30 s.
	HaltWithin time.Duration

	// System, if not nil, is the caller's actor system, in which the run's actors are spawned and
	// stopped: the supervisor under the id "troupe-" and the attempt, the others below it. Nothing
	// else in the system is touched. Stopping the supervisor kills the run. nil: the run has its
	// own system.
	System *actor.ActorSystem
	// Logger logs the start and the end of the run, and protoactor's messages in the run's own
	// system; nil: no log.
	Logger *slog.Logger

	// Attach is called before any actor of the run exists, with the codec for messages to other
	// processes. Detach is called when no actor sends or takes a tensor any more, before the run's
	// memory is freed: the carrier of tensors must release them.
	Attach func(*Codec)
	Detach func()

	dispatcher actor.Dispatcher // dispatcher of the stages; nil: the sender's goroutine. A benchmark sets it
}

// GroupWait is a collective in which a rank waits.
type GroupWait struct {
	What  string    // the collective and its group
	From  int       // the rank that has not reached it; the first of several
	Since time.Time // when this rank reached it
}

// StoredWeights are the tensors of a checkpoint, by the names of a model's parameters.
type StoredWeights struct {
	Params []*stages.Param
	Source stages.Source
}

// epochs returns how often the training data has been used after a step; 0: unknown.
func (s *Spec) epochs(step int64) float64 {
	if s.EpochWindows <= 0 {
		return 0
	}
	return float64(step) * float64(s.Sequences) / float64(s.EpochWindows)
}

// sharers returns the largest number of ranks that have parts of one saved tensor.
func (s *Spec) sharers() int {
	n := 1
	if s.Grid != nil {
		n = s.Grid.Size(grid.Tensor)
		switch {
		case s.SplitState:
			n *= s.Grid.Size(grid.Copies) // of experts, the ranks of all groups
		case s.Grid.WholeExperts():
			n = max(n, s.Grid.Size(grid.Expert))
		default:
			n *= s.Grid.Size(grid.Expert)
		}
	}
	return n
}

// shares reports whether a rank's stage writes its part of a checkpoint itself. A rank with all
// slices assembles sliced tensors.
func (s *Spec) shares(rank int) bool {
	return s.sharers() == 1 && rank < len(s.Shares) && s.Shares[rank] && s.host(rank) != "" && s.WriteShared != nil
}

// apart reports whether some ranks are in other processes.
func (s *Spec) apart() bool { return len(s.Hosts) > 0 }

// host returns the address of a rank's process; "": this process.
func (s *Spec) host(rank int) string {
	if len(s.Hosts) == 0 {
		return ""
	}
	return s.Hosts[rank]
}

// ErrSpec: the parts of a Spec contradict each other.
var ErrSpec = errors.New("contradictory run")

// check compares the tables with the data and with each other. scheduler.Check proves that each
// table can run.
func (s *Spec) check() error {
	if n := len(s.Hosts); n > 0 && n != s.ranks() {
		return fmt.Errorf("%w: there are %d hosts for %d ranks: give one for each rank, or none", ErrSpec, n, s.ranks())
	}
	if err := s.checkDevices(); err != nil {
		return err
	}
	return errors.Join(s.checkWorld(), s.checkEval(), s.checkWindows(), s.checkShadows())
}

// checkEval compares the two tables.
func (s *Spec) checkEval() error {
	t, e := s.Table, s.EvalTable
	if e == nil {
		return nil
	}
	if e.NumRanks() != t.NumRanks() || e.NumChunks != t.NumChunks || e.Placement != t.Placement {
		return fmt.Errorf("%w: validation has %d chunks on %d ranks (placement %v), but training has %d on %d (%v)",
			ErrSpec, e.NumChunks, e.NumRanks(), e.Placement, t.NumChunks, t.NumRanks(), t.Placement)
	}
	return nil
}

// checkWindows compares the table of a validation with its data.
func (s *Spec) checkWindows() error {
	e := s.EvalTable
	if e == nil {
		return nil
	}
	windows, microbatches := 0, 0
	for _, set := range s.evalSets() {
		windows += set.Data.EvalWindows()
		microbatches += set.microbatches(s.MicrobatchSize)
	}
	// With equal tables some replicas may have microbatches without windows.
	more := s.microbatches(event.Eval) - microbatches
	if !e.ForwardOnly || more < 0 || more >= len(s.replicas()) {
		return fmt.Errorf("%w: %d validation windows in microbatches of %d do not fit a table of %d microbatches, or the table is not forward-only", ErrSpec, windows,
			s.MicrobatchSize, s.microbatches(event.Eval))
	}
	return nil
}

// inPlace reports whether the checkpoint of a step is written from the tensors themselves.
func (s *Spec) inPlace(step int64) bool {
	return s.SaveInPlace || s.LastInPlace && step == s.Steps
}
