package attempt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/peft"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/runlog"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Options are the options of Open that are not in the configuration.
type Options struct {
	Fresh         bool // the folder must be empty
	FromStep      int  // resume from the checkpoint of this step; 0: from the newest
	AcceptNewData bool
	Trace         bool          // trace every step
	Hosts         plan.Hosts    // choose the workers of the ranks; nil: this process computes them
	Wait          time.Duration // for workers
	System        *actor.ActorSystem
	Logger        *slog.Logger
}

// Env is what an attempt calls in its run.
type Env struct {
	Context context.Context // its end ends the placing of ranks
	// Event receives the events while the actors train.
	Event func(event.Event)
	Warn  func(format string, args ...any)
	// Prepare says what a long part of the start does, before it does it.
	Prepare func(format string, args ...any)
	// Begun is called when the attempt has opened the folder for writing. Info and the other fields are set then.
	Begun func(*Attempt)
	// Saved is called as soon as a checkpoint is written.
	Saved    func(state trainstate.State, dir string)
	Requests func(step int64) []actors.Request // for an attempt that starts after a step
	Renewed  func(step int64) []actors.Request // for one that continues after a step
	// Marks writes events.jsonl. Unmarked is called with the error if it cannot.
	Marks    *runlog.Marks
	Unmarked func(error)
}

// Attempt is one start of a run. The exported fields are set when Env.Begun is called.
type Attempt struct {
	Info        event.Info
	Step        int64 // after which it starts
	LastValLoss *float64
	Model       *stages.Model
	Tokenizer   tokenizer.Tokenizer // nil: the data are not text
	Text        *corpus.Text

	cfg     *config.Config // resolved
	o       Options
	env     Env
	devices *devices
	byAuto  bool   // device.kind = "auto" chose a GPU
	noGPU   string // why "auto" must not use a GPU; "": it may

	was     *config.Config // of the run's last start; nil: there was none
	rate    *reschedule    // a change of the learning rate by the configuration; nil: there is none
	output  *rundir.Dir
	back    *rundir.Resumed        // nil: a new run
	ckpt    *checkpoint.Checkpoint // that the weights come from; nil: none
	base    *checkpoint.Checkpoint // that the frozen weights come from, if ckpt has only the trained ones; else nil
	adapter *peft.Directory        // that a new run continues; nil: none
	baseIs  rundir.Base            // the base of an adapter
	kept    rundir.Kept            // files of the model that the run started from
	tokens  *corpus.TokenStore
	changed corpus.Comparison
	data    *corpus.Data
	plan    *plan.Plan
	start   trainstate.State
	load    stages.Source
	feed    corpus.Feed
	inPlace bool // there is no memory for a copy of the weights to save
	metrics *telemetry.Writer
	stats   *telemetry.StatsWriter
	sampler *runlog.Sampler // nil: no text is written
	memory  func() []int64  // of each rank
	spec    actors.Spec
	// assignment is what the workers were told.
	assignment plan.Assignment
}

// Open opens everything that an attempt needs. It does not change cfg. ctx ends the wait for workers. After an error
// it has closed everything.
func Open(ctx context.Context, cfg *config.Config, o Options, env Env) (*Attempt, error) {
	a := &Attempt{cfg: cfg, o: o, env: env}
	err := a.open(ctx)
	if err != nil && a.byAuto && !a.begun() {
		// device.kind = "auto" chose the GPU: fall back to the CPU if it cannot run this model.
		why := fmt.Sprintf("not using the GPU: %v; using the CPU", err)
		if closing := a.Close(); closing != nil {
			return nil, plan.AsSetup(errors.Join(err, closing))
		}
		a = &Attempt{cfg: cfg, o: o, env: env, noGPU: why}
		err = a.open(ctx)
	}
	if err != nil {
		return nil, a.fail(err)
	}
	return a, nil
}

// Start starts the actors. After an error it has closed everything.
func (a *Attempt) Start() (*actors.Run, error) {
	run, err := actors.Start(a.spec)
	if err != nil {
		return nil, a.fail(err)
	}
	a.devices.watch(run)
	return run, nil
}

// fail closes what is open. It marks the error as one of the setup if nothing was changed.
func (a *Attempt) fail(err error) error {
	if err = checkpoint.AsNoSpace(err); !a.begun() {
		err = plan.AsSetup(err)
	}
	return errors.Join(err, a.Close())
}

// begun reports whether the folder has been changed.
func (a *Attempt) begun() bool { return a.output != nil && a.output.Begun }

// Close closes what Open has opened, in reverse. Memory still works afterwards.
func (a *Attempt) Close() error {
	errs := []error{a.EndTexts(true), a.env.Marks.Close()}
	if a.stats != nil {
		errs = append(errs, a.stats.Close())
	}
	if a.metrics != nil {
		errs = append(errs, a.metrics.Close())
	}
	if a.data != nil {
		errs = append(errs, a.data.Close())
	}
	if a.devices != nil {
		a.devices.close()
	}
	if a.ckpt != nil {
		errs = append(errs, a.ckpt.Close())
	}
	if a.base != nil {
		errs = append(errs, a.base.Close())
	}
	if a.adapter != nil {
		errs = append(errs, a.adapter.Close())
	}
	if a.output != nil {
		errs = append(errs, a.output.Close())
	}
	// The run keeps the attempt, but not its data.
	a.metrics, a.stats, a.data, a.ckpt, a.base, a.adapter, a.output = nil, nil, nil, nil, nil, nil, nil
	a.feed, a.spec, a.assignment = corpus.Feed{}, actors.Spec{}, plan.Assignment{}
	return errors.Join(errs...)
}

// Event receives the steps and checkpoints in order while the actors train.
func (a *Attempt) Event(e event.Event) { a.sampler.Event(e) }

// EndTexts ends the sampling of texts. cut stops the last one.
func (a *Attempt) EndTexts(cut bool) error {
	s := a.sampler
	a.sampler = nil
	return s.End(cut)
}

// SavedBefore returns the step of the newest checkpoint before a step; 0: none.
func (a *Attempt) SavedBefore(step int64) (last int64) {
	if a.output == nil {
		return 0
	}
	steps, err := a.output.Store.Steps()
	if err != nil {
		return 0 // the caller reports another error
	}
	for _, s := range steps {
		if int64(s) < step {
			last = max(last, int64(s))
		}
	}
	return last
}
