package troupe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/fanout"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda"
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

// Run is a training run.
type Run struct {
	ctx       context.Context // the caller's; its end stops the run
	cfg       *config.Config
	info      Info
	computers *computers
	gpuLeft   string // why "auto" takes no GPU after all; "": it may
	data      *corpus.Data
	tokens    *corpus.TokenStore
	kept      rundir.Kept  // files of what the run began from
	text      *corpus.Text // guarded by mu
	output    *rundir.Dir
	metrics   *telemetry.Writer
	ckpt      *checkpoint.Checkpoint // that the weights come from
	events    chan Event
	feed      *fanout.Feed[Event] // of the subscriptions
	stop      func() bool         // detaches from the context
	restarts  restarts
	marks     marks
	stats     *telemetry.StatsWriter
	sampler   *textSampler // nil: no text is written
	peakFLOPS float64      // of the processor, once it is measured; 0: not known
	traced    int64        // the configuration has every so many steps traced; 0: none

	mu        sync.Mutex
	inner     *actors.Run // the attempt
	between   bool        // it has ended, and the next has not begun
	interrupt func()      // ends the wait for processes between two attempts
	cut       bool        // it is to end, though it has not begun yet
	requests  requests
	killed    bool
	dropped   int
	// recordUntil is when Record ends.
	recordUntil time.Time
	savedStep   int64            // of the last checkpoint
	savedState  trainstate.State // that it holds
	result      Result
	err         error
	done        chan struct{} // closed when result and err are final

	actor     *runActor // nil: there is none
	apart     bool      // the ranks are in other processes
	snapshots snapshots
	step      int64               // that has ended last, as the events tell
	memory    func() []int64      // of each rank: see RankMemory; nil: the run has not begun
	model     *stages.Model       // with tokenizer: what snapshots are of
	tokenizer tokenizer.Tokenizer // nil: the data are no text
}

// Check says whether a configuration can be run, as far as that can be told
// without reading the data: the model, the layout, the schedule, the memory, and
// that the files exist.
func Check(cfg *config.Config) error {
	return setupError(check(cfg, true, 0))
}

// CheckElsewhere is Check for other machines than this one: no device is looked for here, and each rank has one of its
// own with so many bytes of memory for its tensors; 0: memory isn't judged.
func CheckElsewhere(cfg *config.Config, deviceBytes int64) error {
	return setupError(check(cfg, false, deviceBytes))
}

func setupError(err error) error {
	if err != nil {
		return &SetupError{Err: err}
	}
	return nil
}

// check is Check if here is true, else CheckElsewhere.
func check(cfg *config.Config, here bool, deviceBytes int64) (err error) {
	if err := cfg.Validate(); err != nil {
		return err
	}
	var errs []error
	if !cfg.Text() {
		// Their fields are the model's.
	} else if _, _, _, err := corpus.Files(cfg); err != nil {
		errs = append(errs, err)
	}
	ckpt, err := plan.LoadFrom(cfg)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if ckpt != nil {
		defer func() { err = errors.Join(err, ckpt.Close()) }()
	}
	var gpus []device.GPU // none is known
	var gpuPath string
	own := *cfg // what "auto" comes to is of this check
	cfg = &own
	cfg.SetAutoGPU(false)
	if here { // else its devices are other machines'
		device.ResolveAuto(context.Background(), cfg, false)
		d, err := device.OpenSet(cfg)
		if err == nil {
			gpus, gpuPath = d.GPUs(), d.GPUPath()
			d.Close()
		}
		errs = append(errs, err)
	}
	vocab, err := plan.VocabOf(cfg)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	fields, err := plan.FieldsOf(cfg, vocab)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	var from stages.Config
	if ckpt != nil {
		if from, err = plan.ReadModel(ckpt); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	from.Fields = fields
	p, err := plan.New(cfg, vocab, from)
	if err == nil && ckpt != nil {
		err = plan.CheckWeights(ckpt, p.Model(), nil)
	}
	switch {
	case err != nil:
	case here:
		p.SetKernels(gpuPath)
		_, err = p.CheckMemory(gpus)
	default:
		err = p.CheckDeviceMemory(deviceBytes)
	}
	return errors.Join(append(errs, err)...)
}

// Start sets a run up and begins it. It resumes when the output folder holds a
// checkpoint. Errors of the configuration, the data and the folder are
// *SetupError; a folder in use by another process is checkpoint.ErrLocked, what can't
// be read at the moment checkpoint.ErrUnreadable (see checkpoint.TryAgain), and a full
// disk checkpoint.ErrNoSpace.
func Start(ctx context.Context, cfg *config.Config, o Options) (*Run, error) {
	own := *cfg
	r := &Run{ctx: ctx, cfg: &own, events: make(chan Event, LimitEvents), feed: NewEventFeed(), traced: traceEvery(cfg, o), done: make(chan struct{}), interrupt: func() {}, result: Result{LastValLoss: math.NaN()},
		restarts: restarts{most: cfg.Cluster.MaxRestarts}, apart: o.Hosts != nil, between: true}
	if err := r.startActor(o); err != nil {
		return nil, err
	}
	for _, c := range o.Requests {
		if err := c.Check(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrOptions, err)
		}
		if err := r.ask(c); err != nil {
			return nil, err
		}
	}
	if err := r.beginFirst(ctx, o); err != nil {
		r.actor.end(EndEvent{Err: err})
		return nil, err
	}
	r.stop = context.AfterFunc(ctx, r.Stop)
	go r.finish(o) // ends with the run
	return r, nil
}

// beginFirst makes the first attempt, and others while processes are lost before one has begun: nothing was trained or
// written yet, and there may be others.
func (r *Run) beginFirst(ctx context.Context, o Options) error {
	err := r.begin(ctx, o, 0)
	for plan.IsLost(err) {
		if !r.restarts.allows(err, 0) {
			return fmt.Errorf("%w: %w", ErrNoWorkers, r.restarts.exhausted(err))
		}
		next := r.begin(ctx, o, r.lease())
		if next != nil && !plan.IsLost(next) {
			return errors.Join(err, next)
		}
		err = next
	}
	return err
}

// lease is how long an attempt that follows the loss of a process waits for others.
func (r *Run) lease() time.Duration {
	return time.Duration(r.cfg.Cluster.LeaseS * float64(time.Second))
}

// begin makes an attempt at the run. ctx ends the wait for the processes that it needs.
func (r *Run) begin(ctx context.Context, o Options, wait time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	if r.interrupt = cancel; r.cut {
		cancel()
	}
	r.mu.Unlock()
	own := *r.cfg // what setup fills in is of this attempt
	spec, err := r.setup(ctx, &own, o, wait)
	if err != nil && own.AutoGPU() && (r.output == nil || !r.output.Begun) {
		// The GPU was nobody's wish: what it can't do, or hold, the CPU may.
		r.gpuLeft = fmt.Sprintf("the GPU was left out: %v; the CPU is used", err)
		if closing := r.release(); closing != nil {
			return plan.AsSetup(errors.Join(err, closing))
		}
		own = *r.cfg
		spec, err = r.setup(ctx, &own, o, wait)
	}
	var inner *actors.Run
	if err == nil {
		inner, err = actors.Start(*spec)
	}
	if err != nil {
		if err = checkpoint.AsNoSpace(err); r.output == nil || !r.output.Begun {
			err = plan.AsSetup(err)
		}
		return errors.Join(err, r.release())
	}
	r.computers.watch(inner)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inner = inner
	for _, late := range r.requests.late() {
		inner.Ask(late)
	}
	if r.between = false; r.killed {
		inner.Kill()
	}
	if d := time.Until(r.recordUntil); d > 0 {
		inner.Record(d)
	}
	return nil
}

// finish waits for the end of the run and releases all that it held. Where a process was
// lost that computed ranks, the run goes on from its last checkpoint by itself.
func (r *Run) finish(o Options) {
	var out actors.Outcome
	for again := true; again; {
		out = r.inner.Wait()
		out, again = r.recover(o, out)
	}
	r.stop()
	if d := (*DivergedError)(nil); errors.As(out.Err, &d) {
		d.Checkpoint = r.savedBefore(d.First)
	}
	if errors.Is(out.Err, data.ErrVocab) {
		out.Err = &SetupError{Err: out.Err}
	}
	last := r.endSampler(out.Err != nil)
	r.markEnd(out)
	err := errors.Join(r.restarts.exhausted(out.Err), last, r.snapshots.end(), r.release())
	r.mu.Lock()
	r.tellDropped()
	r.err, r.requests.open = err, nil
	r.result.Step, r.result.Stopped, r.result.BestStep = int(out.State.Step), out.Stopped, int(out.State.BestStep)
	r.result.Early = out.Early
	r.result.Updates = out.Updates
	r.result.FirstValLoss, r.result.BestValLoss = deref(out.State.FirstValLoss), deref(out.State.BestValLoss)
	r.mu.Unlock()
	r.actor.end(EndEvent{Result: r.result, Err: r.err})
	r.feed.Close()
	close(r.events)
	close(r.done)
}

// savedBefore is the step of the newest checkpoint before a step; 0: there is none.
func (r *Run) savedBefore(step int64) (last int64) {
	steps, err := r.output.Store.Steps()
	if err != nil {
		return 0 // the error that is told is another one
	}
	for _, s := range steps {
		if int64(s) < step {
			last = max(last, int64(s))
		}
	}
	return last
}

// recover makes another attempt where the last one ended since a process was lost, and reports
// whether it has begun. A run that is to end does so without one.
func (r *Run) recover(o Options, out actors.Outcome) (actors.Outcome, bool) {
	r.mu.Lock()
	r.between = true
	r.mu.Unlock()
	if plan.IsLost(out.Err) { // before restarts are counted: a run that is asked to stop may end with the checkpoint that it has
		if end := r.stopped(out.Err); end != nil {
			return *end, false
		}
	}
	for err := out.Err; r.restarts.allows(err, r.saved()); {
		if end := r.stopped(err); end != nil {
			return *end, false
		}
		next := r.goOn(o, err)
		if next == nil {
			return out, true
		}
		if end := r.stopped(err); end != nil {
			return *end, false
		}
		if errors.Is(next, context.Canceled) {
			out.Err = fmt.Errorf("%w; the run was asked to stop while it waited for other processes, and has written no checkpoint", err)
			return out, false
		}
		if out.Err = errors.Join(err, next); plan.IsLost(next) {
			out.Err = next
		}
		err = next
	}
	return out, false
}

// stopped is how a run ends that was asked to, after the loss err of a process; nil: it needs
// another attempt, to write a checkpoint.
func (r *Run) stopped(err error) *actors.Outcome {
	r.mu.Lock()
	r.cut = false // what was asked until now is looked at here
	killed, stops, last, saved := r.killed, r.requests.stops(r.savedStep), r.savedState, r.result.Dir != ""
	r.mu.Unlock()
	switch {
	case killed:
		return &actors.Outcome{State: last, Err: actors.ErrKilled}
	case !stops || !saved:
		return nil
	}
	r.warn("%v; the run was asked to stop: it ends with its last checkpoint, of step %d", err, last.Step)
	return &actors.Outcome{State: last, Stopped: true}
}

// goOn makes another attempt after one that has ended with err.
func (r *Run) goOn(o Options, err error) error {
	if rerr := r.release(); rerr != nil {
		return errors.Join(err, rerr)
	}
	r.send(RestartEvent{Err: err, Restart: r.restarts.done, Most: r.restarts.most})
	o.Fresh, o.FromStep = false, 0 // that was obeyed
	return r.begin(context.WithoutCancel(r.ctx), o, r.lease())
}

// setup opens everything and describes the run to the actors.
func (r *Run) setup(ctx context.Context, cfg *config.Config, o Options, wait time.Duration) (*actors.Spec, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var err error
	if r.computers, err = openComputers(ctx, cfg, o.Hosts, wait, r.gpuLeft); err != nil {
		return nil, err
	}
	if r.output, err = rundir.Open(cfg, o.Fresh); err != nil {
		return nil, err
	}
	back, err := r.output.Resume(o.FromStep)
	if err != nil {
		return nil, err
	}
	if back != nil {
		r.ckpt = back.Checkpoint
	}
	if err := r.loadShape(cfg, back); err != nil {
		return nil, err
	}
	r.warnDevices(cfg)
	for _, w := range r.output.Warnings {
		r.warn("%s", w)
	}
	stored, err := r.storedTokenizer(cfg, back)
	if err != nil {
		return nil, err
	}
	var changed corpus.Comparison
	var accept corpus.Accept
	if back != nil {
		changed = corpus.Comparison{Was: back.State.Data, Out: cfg.Run.Out, Accept: o.AcceptNewData}
		accept = changed.Check
	}
	if r.kept, err = r.keep(cfg, back != nil); err != nil {
		return nil, err
	}
	talk, err := rundir.ReadTalk(r.kept, stored)
	if err != nil {
		return nil, cfg.Errorf("model.from", "%w", err)
	}
	r.tokens = corpus.NewTokenStore(r.output.FS)
	if r.data, err = corpus.Load(cfg, stored, talk, accept, r.tokens); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.text = corpus.NewText(r.data.Tokenizer, talk, cfg.Data.SpecialTokens)
	r.mu.Unlock()
	if cfg.Text() && cfg.IDBytes() == 0 {
		r.data.Warnings = append(r.text.Warnings(), r.data.Warnings...)
	}
	for _, w := range append(r.tokens.Warnings, r.data.Warnings...) {
		r.warn("%s", w)
	}
	if err := corpus.CheckVocab(cfg, r.data.Tokenizer); err != nil {
		return nil, err
	}
	if n := len(r.data.Excluded); n > 0 {
		r.warn("%d of the files that data.train names are data.val's too: validated on, not trained on: %s", n, corpus.Listed(r.data.Excluded))
	}
	start, load, err := r.begins(cfg, back, &changed)
	if err != nil {
		return nil, err
	}
	p, err := r.plan(cfg, back != nil)
	if err != nil {
		return nil, err
	}
	for _, text := range p.Warnings() {
		r.warn("%s", text)
	}
	for _, text := range p.Model().Thawed() {
		r.warn("model.freeze: %s", text)
	}
	if o := p.OutOfOrder(); o.Any() {
		r.warn("%s computes %v out of microbatch order: the training is right, but its losses differ in the last bits from those of other schedules", cfg.Pipeline.Schedule, o)
	}
	if n := cfg.Pipeline.Stages * cfg.Pipeline.Chunks; n > 1 && cfg.Pipeline.WireDType != "" {
		r.warn("what travels between the %d chunks is rounded to %s (pipeline.wire_dtype): losses depend on where the model is cut", n, cfg.Pipeline.WireDType)
	}
	inPlace, err := r.computers.checkMemory(p)
	if err != nil {
		return nil, err
	}
	if inPlace != "" {
		r.warn("%s", inPlace)
	}
	spec, err := r.spec(cfg, p, start, load, back != nil, o)
	if err == nil {
		spec.SaveInPlace, spec.LastInPlace = inPlace != "", o.Hosts == nil && p.AllOnHost()
	}
	return spec, err
}

// loadShape fills in what the weights decide: of the checkpoint that the run goes on from,
// which has all that was taken from model.from once, else of model.from.
func (r *Run) loadShape(cfg *config.Config, back *rundir.Resumed) (err error) {
	if back == nil {
		if r.ckpt, err = plan.LoadFrom(cfg); err != nil {
			return err
		}
	} else if cfg.Model.From != "" {
		if err := plan.LoadShape(cfg, back.Checkpoint); err != nil {
			return err
		}
	}
	if r.output.Config != nil {
		if err := rundir.Conflicts(cfg, filepath.Join(cfg.Run.Out, rundir.ConfigFile), r.output.Config); err != nil {
			return err
		}
	}
	if back == nil {
		return nil
	}
	text, err := back.Checkpoint.File(rundir.ConfigFile)
	if err != nil {
		return err
	}
	name := filepath.Join(back.Checkpoint.Dir(), rundir.ConfigFile)
	if err := rundir.Conflicts(cfg, name, text); err != nil {
		return err
	}
	stored, err := config.ParseStored(name, text)
	if err != nil {
		return err
	}
	if how := config.Regrouped(stored, cfg); how != "" {
		r.warn("the run %s: losses may differ in the last digits, in float32 within 1e-5 of them", how)
	}
	if how := rateChange(stored, cfg, r.output.Changes(), back.State.Step); how != "" {
		r.warn("%s", how)
	}
	return nil
}

func (r *Run) warn(format string, args ...any) {
	r.send(WarningEvent{Text: fmt.Sprintf(format, args...)})
}

// warnDevices says what the devices can't do of what was asked for.
func (r *Run) warnDevices(cfg *config.Config) {
	if r.computers.set == nil {
		return
	}
	r.computers.set.OnWarning(func(text string) { r.warn("%s", text) })
	if apart := r.computers.set.Apart(); len(apart) > 0 {
		r.warn("no access to each other's memory have %s: what crosses between them goes through the host's", strings.Join(apart, ", "))
	}
	for _, d := range r.computers.set.Opened() {
		if cfg.Device.DType == "bfloat16" && !d.FastBF16() {
			r.warn("device.dtype is bfloat16, and %s kernels have no instructions for it (AVX-512 BF16 and AMX are such, and GPUs from Ampere on have theirs): its numbers take half the memory, and its products are as slow as float32's", d.Path())
		}
		if cfg.Device.TF32 && !device.KnowsTF32(d) {
			r.warn("device.tf32 is true, and cuBLASLt, which knows it, was not found (engine doctor says where it was looked for): products are of whole float32 numbers")
		}
	}
}

// begins says where the run begins or goes on, and where its weights come from.
func (r *Run) begins(cfg *config.Config, back *rundir.Resumed, changed *corpus.Comparison) (start trainstate.State, load stages.Source, err error) {
	load = stages.InitWeights(cfg.Run.Seed)
	if r.ckpt != nil {
		load = plan.Weights(r.ckpt)
	}
	if back == nil {
		start = trainstate.State{FormatVersion: trainstate.Version, Seed: cfg.Run.Seed, Optimizer: cfg.Optimizer.Name}
		start.Run, err = uuid.NewV7()
	} else {
		start = back.State
		if path := r.computers.path(); start.Kernels != path {
			r.warn("the run was trained with %s kernels and goes on with %s: losses may differ in the last bits", start.Kernels, path)
		}
		if d := r.output.Decision(start.Step); d != nil {
			start.Decisions = append(start.Decisions, *d)
		}
		if d := changed.Decision(start.Step); d != nil {
			r.warn("the run goes on with new data (%s)", d.Detail)
			start.Decisions = append(start.Decisions, *d)
		}
		if changed.Validation {
			r.restartBest(&start, "the validation text changed")
		}
	}
	start.Data, start.TrainTokens, start.Kernels = r.data.Identity, r.data.TrainLen(), r.computers.path()
	return start, load, err
}

// restartBest forgets the best validation loss, which was measured on something else.
func (r *Run) restartBest(start *trainstate.State, why string) {
	if start.BestStep > 0 {
		r.warn("%s: the best validation loss so far, %.4f at step %d, was measured otherwise and no longer counts", why, deref(start.BestValLoss), start.BestStep)
	}
	start.FirstValLoss, start.BestValLoss, start.BestStep = nil, nil, 0
}

// plan resolves the configuration for the weights that the run goes on from.
func (r *Run) plan(cfg *config.Config, withState bool) (*plan.Plan, error) {
	vocab := corpus.VocabOf(cfg, r.data.Tokenizer)
	fields := r.data.Fields
	if fields == nil && !cfg.Language() {
		var err error
		if fields, err = plan.FieldsOf(cfg, vocab); err != nil {
			return nil, err
		}
	}
	if r.ckpt == nil {
		return plan.New(cfg, vocab, stages.Config{Fields: fields})
	}
	m, err := plan.ReadModel(r.ckpt)
	if err != nil {
		return nil, err
	}
	if err := plan.SameFields(m.Fields, fields); err != nil {
		return nil, cfg.Errorf("data.train", "%w", err)
	}
	p, err := plan.New(cfg, vocab, m)
	if err != nil {
		return nil, err
	}
	var parts []string
	if withState {
		parts = plan.Optimizer(cfg).Parts()
	}
	return p, plan.CheckWeights(r.ckpt, p.Model(), parts)
}

// storedTokenizer is the one to go on with: the checkpoint's, or that which
// data.tokenizer names, or that of the model which the run starts from. One that is not known matters for text alone:
// see plan.LoadShape.
func (r *Run) storedTokenizer(cfg *config.Config, back *rundir.Resumed) (tokenizer.Tokenizer, error) {
	if back != nil {
		return back.Tokenizer, nil
	}
	if path := cfg.TokenizerPath(); cfg.Text() && path != "" && cfg.IsSet("data.tokenizer") {
		t, err := rundir.OpenTokenizer(path)
		if err != nil {
			return nil, cfg.Errorf("data.tokenizer", "%w", err)
		}
		return t, nil
	}
	if r.ckpt == nil {
		return nil, nil
	}
	t, err := rundir.ReadTokenizer(r.ckpt)
	if checkpoint.TryAgain(err) {
		return nil, fmt.Errorf("%s: %w", r.ckpt.Dir(), err)
	}
	return t, nil
}

// keep reads the files that the run keeps: of the checkpoint that it begins or continues from, and
// where it begins with a tokenizer from elsewhere those beside that.
func (r *Run) keep(cfg *config.Config, continues bool) (rundir.Kept, error) {
	kept, err := rundir.Keep(r.ckpt)
	if err != nil {
		return kept, err
	}
	if path := cfg.TokenizerPath(); path != "" && cfg.IsSet("data.tokenizer") && !continues {
		texts, err := rundir.TextsAt(path)
		if err != nil {
			return kept, cfg.Errorf("data.tokenizer", "%w", err)
		}
		if texts != nil {
			kept.Texts = texts
		}
	}
	return kept, nil
}

// spec describes the run to the actors.
func (r *Run) spec(cfg *config.Config, p *plan.Plan, start trainstate.State, load stages.Source, withState bool, o Options) (*actors.Spec, error) {
	src, err := corpus.FeedOf(r.data, cfg, start.Step)
	if err != nil {
		return nil, err
	}
	if was, is := start.EvalWindows, src.EvalWindows(); withState && was != is {
		r.restartBest(&start, fmt.Sprintf("validations are of %d windows now, not of %d", is, was))
	}
	start.EvalWindows = src.EvalWindows()
	evalMicrobatches := (src.Windows + cfg.Batch.Microbatch - 1) / cfg.Batch.Microbatch
	save, err := rundir.NewSaver(r.output.Store, cfg.Run.Keep, cfg.TOML(), p.Model().Config, r.data.Maker(cfg, p.Model().Config.Vocab), r.kept)
	if err != nil {
		return nil, err
	}
	if _, err := p.CheckWorld(evalMicrobatches); err != nil {
		return nil, err
	}
	spec, err := p.Stages(evalMicrobatches, load, withState, r.computers.groups(p))
	if err != nil {
		return nil, err
	}
	assignment := plan.Assignment{Run: start.Run, Config: cfg, Plan: p, EvalMicrobatches: evalMicrobatches, Stored: r.ckpt != nil, WithState: withState, Step: start.Step}
	if cfg.Cluster.SharedFolder == "auto" {
		assignment.Folder = r.output.FS
	}
	if err := r.computers.place(r.ctx, &spec, assignment); err != nil {
		return nil, err
	}
	begun, err := r.output.Begin(cfg.TOML(), start, withState)
	for _, w := range begun.Warnings {
		r.warn("%s", w)
	}
	if r.metrics, r.stats = begun.Metrics, begun.Stats; err != nil {
		return nil, err
	}
	r.markBegin(begun.Marks, start.Step, withState)
	for _, w := range r.tokens.Write() {
		r.warn("%s", w)
	}
	if begun.LastValLoss != nil {
		r.result.LastValLoss = *begun.LastValLoss
	}
	if withState {
		r.noteSaved(start, r.output.Store.Path(int(start.Step)))
	}
	save.SyncMetrics = r.metrics.Sync
	info := Info{Name: cfg.Run.Name, Out: cfg.Run.Out, ID: start.Run.String(), Family: p.Model().Config.Family, Parameters: p.Model().Parameters(), Frozen: p.Model().Parameters() - p.Model().Trained(), Vocab: p.Model().Config.Vocab,
		TrainTokens: r.data.TrainLen(), ValTokens: r.data.ValLen(), EvalWindows: src.Windows,
		EpochWindows: src.Epoch, EpochSteps: float64(src.Epoch) / float64(cfg.Batch.Sequences),
		Epochs:  float64(cfg.Run.Steps) * float64(cfg.Batch.Sequences) / max(float64(src.Epoch), 1),
		Samples: !cfg.Text(), Classes: strings.Join(r.data.Classes, "; "),
		Steps: cfg.Run.Steps, ResumedAt: int(start.Step),
		Schedule: p.Table().Schedule, Stages: p.Table().NumRanks(), Chunks: p.Table().NumChunks, Microbatches: p.Table().Microbatches,
		Layout: p.Layout().String(), BubblePct: 100 * p.BubbleFraction(), PeakInFlight: p.Report().PeakInFlight,
	}
	if info.Ranks = p.Grid().World(); info.Ranks > info.Stages {
		info.Grid = p.Grid().Describe()
		if zero := p.DescribeZero(); zero != "" {
			info.Grid += "; " + zero
		}
	}
	if cfg.Text() && cfg.IDBytes() == 0 {
		info.Text = r.text.Describe()
	}
	r.computers.describe(&info)
	r.mu.Lock()
	r.info, r.step, r.model, r.tokenizer = info, start.Step, p.Model(), r.data.Tokenizer
	r.mu.Unlock()
	if ckpt := r.ckpt; ckpt != nil {
		if o.Hosts != nil {
			spec.Weights = &actors.StoredWeights{Params: p.Model().Params, Source: load}
		}
		// Whoever removes the checkpoint once the weights are read gets its space back.
		spec.Ready = func() { _ = ckpt.Close() }
	}
	spec.Run, spec.Start, spec.Steps = start.Run, start, int64(cfg.Run.Steps)
	spec.Patience, spec.MaxSkipped = int64(cfg.Run.Patience), int64(cfg.Run.MaxSkippedSteps)
	spec.EvalEvery, spec.CheckpointEvery, spec.TraceEvery = int64(cfg.Run.EvalEvery), int64(cfg.Run.CheckpointEvery), traceEvery(cfg, o)
	spec.Data, spec.MicrobatchSize, spec.Context, spec.Sequences = src.Source, cfg.Batch.Microbatch, src.Context, cfg.Batch.Sequences
	spec.Rate, spec.ClipNorm = rateOf(cfg), cfg.Optimizer.ClipNorm
	memory := r.rankMemory(&spec, p.Grid().World())
	r.mu.Lock()
	r.memory = memory
	r.mu.Unlock()
	layers := newLayerStats(p, memory)
	stats := begun.Stats
	spec.StatsEvery, spec.WriteStats = int64(cfg.Run.StatsEvery), func(n actors.Norms) error { return stats.Write(layers.line(n)) }
	spec.PeakTokensPerS = r.peakTokens(cfg, p)
	var why string
	if r.sampler, why = newTextSampler(r, cfg, p.Model(), r.data.Tokenizer, begun.Samples); why != "" {
		r.warn("no text is written at validations, though run.sample_tokens is %d: %s", cfg.Run.SampleTokens, why)
	}
	if r.sampler != nil && !r.apart {
		spec.CopyAtEval = r.sampler.copyAtEval
	}
	r.mu.Lock()
	spec.Requests = r.requests.begin(start.Step)
	r.mu.Unlock()
	spec.Changes, spec.WriteChange = r.output.Changes(), r.output.WriteChange
	spec.MayPass = checkpoint.MayPass
	save.Saved = r.noteSaved
	spec.WriteShared, spec.WriteCheckpoint = save.WriteShared, save.Write
	spec.WriteRecord, spec.WriteTrace, spec.OnEvent = r.metrics.Write, traceWriter(p, r.output.FS, info.Threads), r.send
	spec.StallAfter = time.Duration(cfg.Run.StallAfterS * float64(time.Second))
	if spec.Logger = o.Logger; spec.System == nil {
		spec.System = o.System
	}
	return &spec, nil
}

// noteSaved notes the last checkpoint, as soon as it is written: the attempt may end before an
// event tells of it.
func (r *Run) noteSaved(state trainstate.State, dir string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Dir, r.savedStep, r.savedState = dir, state.Step, state
}

// saved is the step of the last checkpoint.
func (r *Run) saved() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.savedStep
}

// Change makes a change, or journals it for the step that it names: a ChangeEvent tells of
// it. It takes effect again when the run goes on from an older checkpoint.
func (r *Run) Change(c Change) error {
	if err := c.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return r.ask(c)
}

// send publishes an event, and marks what people look for later.
func (r *Run) send(e Event) {
	if q, ok := e.(actors.RequestEvent); ok {
		r.mu.Lock()
		r.requests.event(q)
		r.mu.Unlock()
		return
	}
	r.publish(e)
	if c, ok := e.(ChangeEvent); ok {
		for _, old := range c.Cancelled {
			r.warn("the learning rate %g from step %d on cancels %g, which was asked for in a step that was lost and was to come back after step %d", c.LR, c.Step+1, old.LR, old.Step)
		}
	}
	switch e.(type) {
	case StepEvent, CheckpointEvent: // which come while the attempt goes on, whose sampler it is
		r.sampler.event(e)
	}
	r.markEvent(e) // and not before: it may wait for the disk
}

// publish gives an event to all who read them. A reader that is too slow loses step events, and is
// told how many.
func (r *Run) publish(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	PublishEvent(r.feed, e)
	if s, ok := e.(StepEvent); ok && (r.traced == 0 || int64(s.Step)%r.traced != 0) { // else whoever reads them wants it
		e = thinned(s, max(len(r.events), r.actor.waiting()))
	}
	r.actor.tell(e)
	if s, ok := e.(StepEvent); ok {
		r.step = int64(s.Step)
		if s.ValLoss != nil {
			r.result.LastValLoss = *s.ValLoss
		}
		if len(r.events) >= cap(r.events)-16 {
			r.dropped++
			return
		}
	}
	if len(r.events) < cap(r.events)-17 {
		r.tellDropped()
	}
	select {
	case r.events <- e:
	default:
		r.dropped++
	}
}

// tellDropped says how many events were lost, if there is room. mu is held.
func (r *Run) tellDropped() {
	if r.dropped == 0 || len(r.events) == cap(r.events) {
		return
	}
	r.events <- droppedWarning(r.dropped)
	r.dropped = 0
}

func droppedWarning(n int) WarningEvent {
	return WarningEvent{Text: fmt.Sprintf("%d events were dropped: nobody read them", n)}
}

// Info describes the run.
func (r *Run) Info() Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.info
}

// Events are what happens, in order; the channel is closed when the run has
// ended. Nobody needs to read it.
func (r *Run) Events() <-chan Event { return r.events }

// Memory is the tensor memory of the run's devices of a kind, "cpu" or "cuda", the sum of several;
// zeros if no rank is on one.
func (r *Run) Memory(kind string) tensorops.MemoryStats { return r.computers.memory(kind) }

// GPUWork tells what each GPU of this process has put into its streams for the run, and how:
// which products are cuBLASLt's, which segments are graphs.
func (r *Run) GPUWork() []cuda.Work {
	if r.computers == nil || r.computers.set == nil {
		return nil
	}
	return r.computers.set.Work()
}

// StageMemory is the most tensor memory that each stage has taken at a time, in bytes, by its name in Status, such as
// "stage 1 (tp 0, dp 1)"; nil where other processes have them.
func (r *Run) StageMemory() map[string]int64 { return r.computers.memoryByStage() }

// RankMemory is the most tensor memory that each rank has taken at a time, in bytes, as far as other
// processes have told of theirs; nil where that is not known.
func (r *Run) RankMemory() []int64 {
	r.mu.Lock()
	memory := r.memory
	r.mu.Unlock()
	if memory == nil {
		return nil
	}
	return memory()
}

// Status says what every actor is doing, and the root of what they wait for. It
// answers at any moment, whatever state the actors are in.
func (r *Run) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inner == nil { // a watcher asks before it has begun
		return Status{Time: time.Now(), Requests: r.requests.list()}
	}
	s := r.inner.Status()
	s.Requests = r.requests.list()
	return s
}

// Wait waits for the end of the run. Nothing of it is left behind then.
func (r *Run) Wait() (Result, error) {
	<-r.done
	return r.result, r.err
}

func deref(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// release closes what setup opened, in reverse.
func (r *Run) release() error {
	errs := []error{r.endSampler(true), r.marks.close()}
	if r.stats != nil {
		errs = append(errs, r.stats.Close())
	}
	if r.metrics != nil {
		errs = append(errs, r.metrics.Close())
	}
	if r.data != nil {
		errs = append(errs, r.data.Close())
	}
	if r.computers != nil {
		r.computers.close()
	}
	if r.ckpt != nil {
		errs = append(errs, r.ckpt.Close())
	}
	if r.output != nil {
		errs = append(errs, r.output.Close())
	}
	// Whoever keeps the run keeps no text by it, and the next attempt opens its own.
	r.metrics, r.stats, r.data, r.ckpt, r.output = nil, nil, nil, nil, nil
	return errors.Join(errs...)
}

// endSampler ends the writing of texts, of which cut ends the last one where it is.
func (r *Run) endSampler(cut bool) error {
	s := r.sampler
	r.sampler = nil
	return s.end(cut)
}
