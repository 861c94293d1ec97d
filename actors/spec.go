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

// Compute is what a stage actor asks of the stage that it runs; *stages.Stage
// is one. Its methods record and never wait.
type Compute interface {
	stages.Passes
	NeedsTokens(chunk int) bool
	NeedsTargets(chunk int) bool
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

// Queuer is a Compute that can record a pass while those before it are carried out.
type Queuer interface {
	// Queue reports whether it can; then all that follows may be recorded so.
	Queue() bool
	// ReportLater is Report of the forward that was recorded last, for when it has completed.
	ReportLater(chunk, index int) func() stages.Report
}

// Spec is everything a run needs. The functions and interfaces are its only way
// to files.
type Spec struct {
	Run uuid.UUID
	// Attempt names this attempt at the run; zero: Start makes a name.
	Attempt uuid.UUID
	Device  tensorops.Device
	// Devices, if there are any, take the place of Device: one for each rank. Ranks on the
	// same one, as == tells, hand their tensors over as they are.
	Devices []tensorops.Device

	// Hosts, if there are any, are the addresses of the processes that the ranks are in, one
	// for each rank; "": in this one. StartStages makes the stages there.
	Hosts []string
	// Build makes rank r's stage on its stream, with its weights. It is called
	// in a goroutine of its own, which the run's end waits for.
	Build func(rank int, s tensorops.Stream) (Compute, error)
	// Weights are the stored tensors that stages in other processes ask for; nil: there are
	// none.
	Weights *StoredWeights
	// Ready is called once, when every stage has its weights.
	Ready func()
	// TiedRanks are the ranks of the pipeline that use a tied weight: where there are several, each
	// sends its gradient to all others.
	TiedRanks []int

	// Routes say, for each chunk, where its tensors come from and go to. The tables have the
	// skips that they make (Skips). nil: one tensor goes from each chunk to the next.
	Routes    []stages.Route
	Table     *scheduler.Table // one training step
	EvalTable *scheduler.Table // one validation; nil: none
	// Grid, if there is one, numbers the ranks; without it each is a stage of the one pipeline. With several
	// replicas Replicas has the tables of each, and Table and EvalTable are those of the one that
	// has most to do.
	Grid     *grid.Grid
	Replicas []Replica
	// Edge: data, and the weights of the first stage, which EdgeParams names, don't leave this process and those of that
	// stage's ranks.
	Edge       bool
	EdgeParams map[string]bool
	// Readers says of each chunk whether its layers read data, and Holders of each parameter which stages of the pipeline
	// use it: no other process gets data, or stored weights. nil: every process that has ranks does.
	Readers []bool
	Holders map[string][]int
	// Slices: each rank of a tensor group has a run of the positions of what travels between chunks. Way is how
	// that gets from one group to another.
	Slices bool
	Way    grid.Way
	// SplitState: the replicas of a stage have a part of the optimizer's state each, or of the weights too (ZeRO).
	SplitState bool
	// FailGroups ends what the ranks of this process wait for in their groups, now and from now
	// on; nil: there are no groups.
	FailGroups func(error)
	// GroupStatus says what a rank of this process waits for in its groups; nil: there are none.
	GroupStatus func(rank int) (GroupWait, bool)
	// CutLinks are the links between processes on which nothing arrives; nil: nobody knows.
	CutLinks func() []event.CutLink
	// PostValidate lets stages apply a step's update speculatively and begin the next
	// step before all have reported; a wrong update is rolled back.
	PostValidate bool
	// TraceEvery is the number of steps after which a step's actions are timed and
	// reported; 0: never.
	TraceEvery int64

	Data           Source
	MicrobatchSize int // sequences in a microbatch
	Context        int // positions of a training sequence
	Multiple       int // of which the positions of every microbatch must be one; 0: any number will do
	Sequences      int // sequences in a step
	// Recompute says whether a rank of the pipeline recomputes a microbatch's activations.
	Recompute func(rank, microbatch int) bool
	// HeadLater says whether the weight gradient of the head waits for its W, of a microbatch of so
	// many; nil: none does.
	HeadLater func(microbatches, microbatch int) bool

	Rate     stages.Rate
	ClipNorm float64 // 0: none

	Start           trainstate.State // Step 0: a fresh start
	Steps           int64
	EvalEvery       int64 // 0: before the first step and after the last
	Patience        int64 // validations without a better loss after which the run ends; 0: none
	CheckpointEvery int64 // 0: at the end

	// WriteCheckpoint writes a checkpoint and returns its directory; nil: none
	// are written. The tensors are its to read until it returns.
	WriteCheckpoint func(ctx context.Context, state trainstate.State, saved []stages.Saved, best bool) (string, error)
	// Shares says of each rank whether its process sees the run's folder, so that its stage can
	// write its part of a checkpoint itself; none: no process does. Such checkpoints are
	// written by WriteShared: tensors without Data are the others'.
	Shares      []bool
	WriteShared func(ctx context.Context, state trainstate.State, saved []stages.Saved, best bool, others trainstate.Others) (string, error)
	// MayPass says whether an error of writing a checkpoint, or a line of the run's files, is worth another try; nil:
	// none is, and the attempt fails.
	MayPass func(error) bool
	// SaveInPlace has checkpoints written from the tensors themselves, while the next step waits,
	// and not from copies. The host must be able to address the memory of all stages, and all must
	// be in this process.
	SaveInPlace bool
	// LastInPlace is the same for the checkpoint of the last step, behind which nothing waits.
	LastInPlace bool
	// WriteOwn is what a stage in another process than the checkpoint actor's writes its part
	// with; nil: it can't. It returns the CRC-32C of each tensor.
	WriteOwn func(ctx context.Context, step int64, places []trainstate.Place, saved []stages.Saved) ([]uint32, error)
	// MaxSkipped ends the run with a DivergedError when so many steps in a row had no finite loss and
	// gradient; 0: never.
	MaxSkipped int64
	// Requests were asked of the run before this attempt and are not done: they are taken before the
	// first order, and those that come later by Run.Ask. RequestEvents say what becomes of them.
	Requests []Request
	// Changes were journalled by earlier attempts. WriteChange journals one, durably, before
	// it takes effect; nil: nothing is journalled.
	Changes     []event.Change
	WriteChange func(event.Change) error
	// WriteRecord appends to metrics.jsonl; nil: nothing is written.
	WriteRecord func(telemetry.Record) error
	// WriteTrace takes the times of a step's actions, and the clocks that were taken off them
	// (see StepEvent); nil: nothing is written.
	WriteTrace func(step int64, trace [][]event.ActionTime, clocks []event.Clock) error
	// WriteStats takes norms by parameter, every StatsEvery steps; nil or 0: they are not taken.
	WriteStats func(Norms) error
	StatsEvery int64
	// PeakTokensPerS is how many tokens a second would take the processor's peak of operations; 0: not
	// known.
	PeakTokensPerS float64
	// CopyAtEval is told that a validation has ended, and gives the memory for a copy of the weights that it was
	// of, by a parameter's Index, and what is to be called when they are there: it is given what may be left
	// to put in place, and must not block. nil, or no memory: nobody wants one. All stages must be in this process. Training
	// goes on when each stage has copied its own.
	CopyAtEval func(step int64) (to func(param int) []float32, done func(place func() error))
	// Clock is how the clock of a rank that is in another process stands to this one's; nil:
	// as this one's.
	Clock func(rank int) event.Clock
	// Wall is what a process's clock shows at a time that it tells another process; nil: that
	// time. A test makes it wrong.
	Wall func(time.Time) time.Time
	// Collect lets a validation collect what the model's layers give out, for OutputEvents.
	Collect bool
	// OnEvent is told what happens, from the metrics actor and the watchdog. It
	// must not block for long: training doesn't wait for it, but its own events
	// queue behind it.
	OnEvent func(event.Event)

	StallAfter time.Duration // 0: no watchdog
	// HaltWithin is how long a run that ends with an error waits for stages in other processes; 0: 30 s.
	HaltWithin time.Duration

	// System, if there is one, is the caller's own, which the run's actors are spawned in
	// and stopped in: the run's supervisor as "troupe-" and the attempt, and the others
	// below it. Nothing else there is touched; stopping the supervisor kills the run.
	// nil: the run has a system of its own.
	System *actor.ActorSystem
	// Logger is told how the run begins and ends, and what protoactor tells in a system of
	// the run's own; nil: nobody is.
	Logger *slog.Logger

	// Attach is called before any actor of the run is there, with what its messages are
	// carried to other processes by. Detach is called when no actor sends or takes a tensor any
	// more, and before the run's memory goes back: whoever carries tensors lets go of them.
	Attach func(*Codec)
	Detach func()

	dispatcher actor.Dispatcher // of the stages; nil: the sender's goroutine. A benchmark sets it
}

// GroupWait is a collective that a rank waits in.
type GroupWait struct {
	What  string    // it and its group
	From  int       // the rank that has not come to it; the first of several
	Since time.Time // when this rank came
}

// StoredWeights are tensors of a checkpoint, by the names of a model's parameters.
type StoredWeights struct {
	Params []*stages.Param
	Source stages.Source
}

// sharers is the most ranks that have a part each of one tensor that is saved.
func (s *Spec) sharers() int {
	n := 1
	if s.Grid != nil {
		n = s.Grid.Size(grid.Tensor)
		if s.SplitState {
			n *= s.Grid.Size(grid.Copies)
		}
	}
	return n
}

// shares reports whether a rank's stage writes its part of a checkpoint itself. Slices of tensors are put
// together by who has all of them.
func (s *Spec) shares(rank int) bool {
	return s.sharers() == 1 && rank < len(s.Shares) && s.Shares[rank] && s.host(rank) != "" && s.WriteShared != nil
}

// apart reports whether some ranks are in other processes.
func (s *Spec) apart() bool { return len(s.Hosts) > 0 }

// host is the address of the process that a rank is in; "": this one.
func (s *Spec) host(rank int) string {
	if len(s.Hosts) == 0 {
		return ""
	}
	return s.Hosts[rank]
}

// ErrSpec: the parts of a Spec contradict each other.
var ErrSpec = errors.New("contradictory run")

// check compares the tables with the data and with each other. That each is a
// table that can be run is for scheduler.Check to say.
func (s *Spec) check() error {
	if n := len(s.Hosts); n > 0 && n != s.ranks() {
		return fmt.Errorf("%w: %d hosts for %d ranks: give one for each, or none", ErrSpec, n, s.ranks())
	}
	if err := s.checkDevices(); err != nil {
		return err
	}
	return errors.Join(s.checkWorld(), s.checkEval(), s.checkWindows())
}

// checkEval compares the two tables.
func (s *Spec) checkEval() error {
	t, e := s.Table, s.EvalTable
	if e == nil {
		return nil
	}
	if e.NumRanks() != t.NumRanks() || e.NumChunks != t.NumChunks || e.Placement != t.Placement {
		return fmt.Errorf("%w: validation has %d chunks on %d ranks (placement %v), training %d on %d (%v)",
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
	windows := s.Data.EvalWindows()
	// Replicas that all have as many may have some without windows.
	more := s.microbatches(event.Eval) - (windows+s.MicrobatchSize-1)/s.MicrobatchSize
	if !e.ForwardOnly || more < 0 || more >= len(s.replicas()) {
		return fmt.Errorf("%w: %d validation windows need a forward-only table of microbatches of %d, not of %d microbatches", ErrSpec, windows,
			s.MicrobatchSize, s.microbatches(event.Eval))
	}
	return nil
}

// inPlace reports whether the checkpoint of a step is written from the tensors themselves.
func (s *Spec) inPlace(step int64) bool {
	return s.SaveInPlace || s.LastInPlace && step == s.Steps
}
