package troupe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/data"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tokenizer"
)

// LimitEvents bounds the events that wait for a reader of Run.Events. When it is
// reached, step events are dropped and counted; the run doesn't wait.
const LimitEvents = 1024

// Events of a run, sent in order.
type (
	// Event is one of the types below.
	Event = actors.Event
	// StepEvent: a step ended; Step 0 is the validation before training.
	StepEvent = actors.StepEvent
	// CheckpointEvent: a checkpoint was written.
	CheckpointEvent = actors.CheckpointEvent
	// StallEvent: nothing has moved for run.stall_after_s.
	StallEvent = actors.StallEvent
	// PauseEvent: the run paused at a step's end, or goes on.
	PauseEvent = actors.PauseEvent
)

// Updates counts steps by how their update was made, where pipeline.post_validation is
// on: presumed and kept, presumed and rolled back, or waited for.
type Updates = actors.Updates

// WarningEvent: something a person should know, such as a damaged checkpoint
// that was passed over.
type WarningEvent struct{ Text string }

// Options are what a configuration does not say.
type Options struct {
	Fresh bool // start anew: the output folder must be empty
	Trace bool // time every action of every step, whatever run.trace_every says: see StepEvent.Trace
}

// Info describes a run that has been set up.
type Info struct {
	Name, Out     string
	Family        string
	Parameters    int64
	Vocab         int
	TrainTokens   int64
	ValTokens     int64
	EvalWindows   int
	Steps         int
	ResumedAt     int // step of the checkpoint that it goes on from; 0: a fresh start
	Schedule      string
	Stages        int // ranks
	VirtualStages int
	Microbatches  int
	Layout        string
	BubblePct     float64 // ideal: of the table at unit costs
	PeakInFlight  []int   // by rank
	Device        string  // "cpu" or "cuda"; both, as "cuda, cpu", where ranks differ
	Threads       int     // of the CPU, where a rank computes on it
	Kernels       string  // of several devices each with its ranks: "cuda-sm_90 (rank 0), cpu-avx2 (rank 1)"
}

// Result is how a run ended.
type Result struct {
	Step         int
	Stopped      bool // by request, before the last step
	FirstValLoss float64
	LastValLoss  float64 // NaN: there was no validation
	BestValLoss  float64
	BestStep     int
	Dir          string // the last checkpoint
	Updates      Updates
}

// Run is a training run.
type Run struct {
	info    Info
	inner   *actors.Run
	devices *devices
	corpora *corpora
	output  *output
	metrics *telemetry.Writer
	ckpt    *checkpoint.Checkpoint // that the weights come from
	events  chan Event
	stop    func() bool // detaches from the context

	mu      sync.Mutex
	dropped int
	result  Result
	err     error
	done    chan struct{} // closed when result and err are final
}

// Check says whether a configuration can be met, as far as that can be told
// without reading the data: the model, the layout, the schedule, the memory, and
// that the files exist.
func Check(cfg *config.Config) error {
	if err := check(cfg); err != nil {
		return &SetupError{err}
	}
	return nil
}

func check(cfg *config.Config) (err error) {
	if err := cfg.Validate(); err != nil {
		return err
	}
	var errs []error
	if _, err := data.Files(cfg.Data.Train); err != nil {
		errs = append(errs, cfg.Errorf("data.train", "%w", err))
	}
	if len(cfg.Data.Val) > 0 {
		if _, err := data.Files(cfg.Data.Val); err != nil {
			errs = append(errs, cfg.Errorf("data.val", "%w", err))
		}
	}
	ckpt, err := adoptModel(cfg)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if ckpt != nil {
		defer func() { err = errors.Join(err, ckpt.Close()) }()
	}
	var gpuFree int64 // not known
	if d, err := openDevices(cfg); err != nil {
		errs = append(errs, err)
	} else {
		gpuFree = d.onGPU()
		d.close()
	}
	vocab := cfg.Model.Vocab
	if vocab == 0 {
		vocab = vocabBytes // chars: not known before the text is read
	}
	p, err := newPlan(cfg, vocab, 0)
	if err == nil && ckpt != nil {
		err = checkWeights(ckpt, p.model, nil)
	}
	if err == nil {
		err = p.checkMemory(gpuFree)
	}
	return errors.Join(append(errs, err)...)
}

// adoptModel fills the model's sizes and the tokenizer from model.from and opens
// that checkpoint; nil when there is none.
func adoptModel(cfg *config.Config) (*checkpoint.Checkpoint, error) {
	if cfg.Model.From == "" {
		return nil, nil
	}
	ckpt, err := openFrom(cfg.Model.From)
	if err != nil {
		return nil, cfg.Errorf("model.from", "%w", err)
	}
	if err := adopt(cfg, ckpt); err != nil {
		return nil, errors.Join(err, ckpt.Close())
	}
	return ckpt, nil
}

func adopt(cfg *config.Config, from *checkpoint.Checkpoint) error {
	m, err := readModel(from)
	if err != nil {
		return cfg.Errorf("model.from", "%s: %w", from.Dir(), err)
	}
	if m.Family == stages.GPT2 {
		m.RopeTheta = unusedRopeTheta
	}
	err = cfg.AdoptModel(config.Model{Family: m.Family, Layers: m.Layers, Hidden: m.Hidden, Heads: m.Heads, KVHeads: m.KVHeads, FFN: m.FFN,
		Context: m.Context, Vocab: m.Vocab, TieEmbeddings: m.Tie, RopeTheta: m.RopeTheta, MTPLayers: m.MTPLayers})
	if err != nil || cfg.Data.Format != "text" {
		return err
	}
	// The weights know the ids of the tokenizer that they were trained with.
	t, err := readTokenizer(from)
	if err != nil {
		return cfg.Errorf("model.from", "%s: %w; to train it on, give the text as token ids (data.format = \"uint16\")", from.Dir(), err)
	}
	if t == nil || t.Name() == cfg.Data.Tokenizer {
		return nil
	}
	if cfg.IsSet("data.tokenizer") {
		return cfg.Errorf("data.tokenizer", "%q, but the model in model.from was trained with %q; leave the key out, or start from another checkpoint", cfg.Data.Tokenizer, t.Name())
	}
	cfg.Data.Tokenizer = t.Name()
	return nil
}

// unusedRopeTheta is what a configuration says of a family without it: a value
// that the key may have.
const unusedRopeTheta = 10000

// openFrom opens the checkpoint that a person means by a path.
func openFrom(path string) (*checkpoint.Checkpoint, error) {
	dir, err := checkpoint.Resolve(path)
	if err != nil {
		return nil, err
	}
	return checkpoint.Open(dir)
}

// Start sets a run up and begins it. It resumes when the output folder holds a
// checkpoint. Errors of the configuration, the data and the folder are
// *SetupError; a folder in use by another process is checkpoint.ErrLocked, and a
// full disk checkpoint.ErrNoSpace.
func Start(ctx context.Context, cfg *config.Config, o Options) (*Run, error) {
	r := &Run{events: make(chan Event, LimitEvents), done: make(chan struct{}), result: Result{LastValLoss: math.NaN()}}
	own := *cfg // what setup fills in is not the caller's
	spec, err := r.setup(&own, o)
	if err == nil {
		r.inner, err = actors.Start(*spec)
	}
	if err != nil {
		return nil, errors.Join(asSetup(err), r.release())
	}
	r.stop = context.AfterFunc(ctx, r.inner.Stop)
	go r.finish() // ends with the run
	return r, nil
}

// finish waits for the end of the run and releases all that it held.
func (r *Run) finish() {
	out := r.inner.Wait()
	r.stop()
	if errors.Is(out.Err, data.ErrVocab) {
		out.Err = &SetupError{out.Err}
	}
	err := errors.Join(out.Err, r.release())
	r.mu.Lock()
	r.tellDropped()
	r.err = err
	r.result.Step, r.result.Stopped, r.result.BestStep = int(out.State.Step), out.Stopped, int(out.State.BestStep)
	r.result.Updates = out.Updates
	r.result.FirstValLoss, r.result.BestValLoss = deref(out.State.FirstValLoss), deref(out.State.BestValLoss)
	r.mu.Unlock()
	close(r.events)
	close(r.done)
}

// asSetup marks an error of the setup, unless trying again may help.
func asSetup(err error) error {
	if errors.Is(err, checkpoint.ErrLocked) || errors.Is(err, checkpoint.ErrNoSpace) {
		return err
	}
	return &SetupError{err}
}

// setup opens everything and describes the run to the actors.
func (r *Run) setup(cfg *config.Config, o Options) (*actors.Spec, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	from, err := adoptModel(cfg)
	if err != nil {
		return nil, err
	}
	r.ckpt = from
	if r.devices, err = openDevices(cfg); err != nil {
		return nil, err
	}
	if r.output, err = openOutput(cfg, o.Fresh); err != nil {
		return nil, err
	}
	back, err := r.output.resume()
	if err != nil {
		return nil, err
	}
	for _, d := range r.devices.opened {
		if cfg.Device.DType == "bfloat16" && !d.FastBF16() {
			r.send(WarningEvent{fmt.Sprintf("device.dtype is bfloat16, and %s kernels have no instructions for it (AMX has, and GPUs from Ampere on): products are rounded to it, and as slow as float32's", d.Path())})
		}
		if g, ok := d.(gpu); ok && cfg.Device.TF32 && !g.HasBLAS() {
			r.send(WarningEvent{"device.tf32 is true, and cuBLASLt, which knows it, was not found (engine doctor says where it was looked for): products are of whole float32 numbers"})
		}
	}
	for _, w := range r.output.warnings {
		r.send(WarningEvent{w})
	}
	start := actors.TrainerState{FormatVersion: actors.TrainerStateVersion, Seed: cfg.Run.Seed, Kernels: r.devices.path(), Optimizer: cfg.Optimizer.Name}
	load, withState := stages.Draw(cfg.Run.Seed), false
	if start.Run, err = uuid.NewV7(); err != nil {
		return nil, err
	}
	if from != nil {
		load = weights(from)
	}
	var stored *resumed
	if back != nil {
		if r.ckpt != nil {
			err = r.ckpt.Close()
		}
		r.ckpt, stored = back.ckpt, back
		if err = errors.Join(err, r.accept(cfg, back)); err != nil {
			return nil, err
		}
		start, load, withState = back.state, weights(back.ckpt), true
	}
	if r.corpora, err = loadData(cfg, r.storedTokenizer(stored, from)); err != nil {
		return nil, err
	}
	if err := checkVocab(cfg, r.corpora.tokenizer); err != nil {
		return nil, err
	}
	if back != nil && start.TrainTokens != r.corpora.train.Len() {
		return nil, cfg.Errorf("data.train", "%w %s was trained on %d tokens, the files now hold %d; restore them, or choose another run.out", ErrOutput, cfg.Run.Out, start.TrainTokens, r.corpora.train.Len())
	}
	start.TrainTokens, start.Kernels = r.corpora.train.Len(), r.devices.path()
	p, err := r.plan(cfg, withState)
	if err != nil {
		return nil, err
	}
	if p.report.OutOfOrder {
		r.send(WarningEvent{fmt.Sprintf("%s computes weight gradients out of microbatch order: the training is right, but its losses differ in the last bits from those of other schedules", cfg.Pipeline.Schedule)})
	}
	if err := p.checkMemory(r.devices.onGPU()); err != nil {
		return nil, err
	}
	return r.spec(cfg, p, start, load, withState, o)
}

// plan resolves the configuration for the weights that the run goes on from.
func (r *Run) plan(cfg *config.Config, withState bool) (*plan, error) {
	vocab := vocabOf(cfg, r.corpora.tokenizer)
	if r.ckpt == nil {
		return newPlan(cfg, vocab, 0)
	}
	m, err := readModel(r.ckpt)
	if err != nil {
		return nil, err
	}
	p, err := newPlan(cfg, vocab, m.NormEps)
	if err != nil {
		return nil, err
	}
	var parts []string
	if withState {
		parts = optimizer(cfg).Parts()
	}
	return p, checkWeights(r.ckpt, p.model, parts)
}

// accept compares a checkpoint with today's configuration and device.
func (r *Run) accept(cfg *config.Config, back *resumed) error {
	text, err := back.ckpt.File(configFile)
	if err != nil {
		return err
	}
	if err := conflicts(cfg, filepath.Join(back.ckpt.Dir(), configFile), text); err != nil {
		return err
	}
	if k := back.state.Kernels; k != r.devices.path() {
		r.send(WarningEvent{fmt.Sprintf("the run was trained with %s kernels and goes on with %s: losses may differ in the last bits", k, r.devices.path())})
	}
	return nil
}

// storedTokenizer is the one to go on with: the checkpoint's, or that of the
// model which the run starts from. One that is not known matters for text alone:
// see adopt.
func (r *Run) storedTokenizer(back *resumed, from *checkpoint.Checkpoint) tokenizer.Tokenizer {
	if back != nil {
		return back.tokenizer
	}
	if from != nil {
		if t, err := readTokenizer(from); err == nil {
			return t
		}
	}
	return nil
}

// spec describes the run to the actors.
func (r *Run) spec(cfg *config.Config, p *plan, start actors.TrainerState, load stages.Source, withState bool, o Options) (*actors.Spec, error) {
	src, err := newSource(r.corpora, cfg)
	if err != nil {
		return nil, err
	}
	evalTable, err := p.evalTable((len(src.windows) + cfg.Batch.Microbatch - 1) / cfg.Batch.Microbatch)
	if err != nil {
		return nil, err
	}
	save, err := newSaver(r.output.store, cfg.Run.Keep, cfg.TOML(), p.model.Config, r.corpora.maker(cfg, p.model.Config.Vocab))
	if err != nil {
		return nil, err
	}
	if err := r.begin(cfg, start, withState); err != nil {
		return nil, err
	}
	r.info = Info{Name: cfg.Run.Name, Out: cfg.Run.Out, Family: p.model.Config.Family, Parameters: p.model.Config.Parameters(), Vocab: p.model.Config.Vocab,
		TrainTokens: r.corpora.train.Len(), ValTokens: r.corpora.val.Len(), EvalWindows: len(src.windows), Steps: cfg.Run.Steps, ResumedAt: int(start.Step),
		Schedule: p.table.Schedule, Stages: p.table.NumRanks(), VirtualStages: p.table.NumStages, Microbatches: p.table.Microbatches,
		Layout: p.layout.String(), BubblePct: 100 * p.bubble, PeakInFlight: p.report.PeakInFlight,
		Device: r.devices.names(), Threads: r.devices.threads(), Kernels: r.devices.path()}
	rate := stages.Rate{LR: cfg.Optimizer.LR, MinLR: cfg.Optimizer.MinLR, Warmup: int64(cfg.Optimizer.WarmupSteps), Steps: int64(cfg.Run.Steps), Decay: cfg.Optimizer.Decay}
	return &actors.Spec{
		Run: start.Run, Devices: r.devices.ofRanks(),
		Build: func(rank int, s tensorops.Stream) (actors.Compute, error) {
			return buildStage(p, rank, s, load, withState)
		},
		TiedRanks: p.embeddingRanks(), Table: p.table, EvalTable: evalTable, Bound: p.dynamicBound(), PostValidate: cfg.Pipeline.PostValidation, TraceEvery: traceEvery(cfg, o),
		Data: src, MicrobatchSize: cfg.Batch.Microbatch, Context: cfg.Model.Context, Sequences: cfg.Batch.Sequences, Recompute: p.recompute(), HeadLater: p.headLater(),
		Rate: rate, ClipNorm: cfg.Optimizer.ClipNorm,
		Start: start, Steps: int64(cfg.Run.Steps), EvalEvery: int64(cfg.Run.EvalEvery), CheckpointEvery: int64(cfg.Run.CheckpointEvery),
		WriteCheckpoint: save.write, WriteRecord: r.metrics.Write, WriteTrace: p.traceWriter(r.devices.threads()), OnEvent: r.send,
		StallAfter: time.Duration(cfg.Run.StallAfterS * float64(time.Second)),
	}, nil
}

// begin writes to the output folder, now that everything is accepted. The
// configuration comes first: by it the folder is known as the run's.
func (r *Run) begin(cfg *config.Config, start actors.TrainerState, resumes bool) error {
	path, cut := filepath.Join(cfg.Run.Out, metricsFile), metricsCut(start)
	before, err := telemetry.Read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, b := range before {
		if b.Step <= cut && b.ValLoss != nil {
			r.result.LastValLoss = *b.ValLoss
		}
	}
	if err := checkpoint.WriteFileAtomic(checkpoint.OS(), filepath.Join(cfg.Run.Out, configFile), cfg.TOML()); err != nil {
		return err
	}
	if r.metrics, err = telemetry.OpenWriter(path, cut); err != nil || !resumes {
		return err
	}
	r.result.Dir = r.ckpt.Dir()
	return r.output.point(start)
}

// metricsCut is the last step whose line stays: none for a fresh start.
func metricsCut(start actors.TrainerState) int {
	if start.Step == 0 {
		return -1
	}
	return int(start.Step)
}

// buildStage makes a rank's stage with its weights.
func buildStage(p *plan, rank int, s tensorops.Stream, load stages.Source, withState bool) (*stages.Stage, error) {
	st, err := stages.NewStage(p.model, s, p.chunks[rank], p.stageOptions(rank))
	if err != nil {
		return nil, err
	}
	return st, st.Load(load, withState)
}

// send publishes an event. A reader that is too slow loses step events, and is
// told how many.
func (r *Run) send(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := e.(StepEvent); ok {
		if s.ValLoss != nil {
			r.result.LastValLoss = *s.ValLoss
		}
		if len(r.events) >= cap(r.events)-16 {
			r.dropped++
			return
		}
	}
	if c, ok := e.(CheckpointEvent); ok {
		r.result.Dir = c.Dir
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
	r.events <- WarningEvent{fmt.Sprintf("%d events were dropped: nobody read them", r.dropped)}
	r.dropped = 0
}

// Info describes the run.
func (r *Run) Info() Info { return r.info }

// Events are what happens, in order; the channel is closed when the run has
// ended. Nobody needs to read it.
func (r *Run) Events() <-chan Event { return r.events }

// Pause holds the run at the end of its step; Resume lets it go on.
func (r *Run) Pause() { r.inner.Pause() }

// Resume lets a paused run go on.
func (r *Run) Resume() { r.inner.Resume() }

// Checkpoint asks for a checkpoint at the end of the step.
func (r *Run) Checkpoint() { r.inner.Checkpoint() }

// Stop ends the run at the end of its step, with a checkpoint.
func (r *Run) Stop() { r.inner.Stop() }

// Kill ends the run at once, without a checkpoint.
func (r *Run) Kill() { r.inner.Kill() }

// Memory is the tensor memory of the run's device of a kind, "cpu" or "cuda"; zeros if no
// rank is on one.
func (r *Run) Memory(kind string) tensorops.MemoryStats { return r.devices.memory(kind) }

// Status says what every actor is doing, and the root of what they wait for. It
// answers at any moment, whatever state the actors are in.
func (r *Run) Status() actors.Status { return r.inner.Status() }

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
	var errs []error
	if r.metrics != nil {
		errs = append(errs, r.metrics.Close())
	}
	if r.corpora != nil {
		errs = append(errs, r.corpora.Close())
	}
	if r.devices != nil {
		r.devices.close()
	}
	if r.ckpt != nil {
		errs = append(errs, r.ckpt.Close())
	}
	if r.output != nil {
		errs = append(errs, r.output.lock.Unlock())
	}
	return errors.Join(errs...)
}
