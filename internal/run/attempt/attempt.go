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

// Options are what the configuration does not say.
type Options struct {
	Fresh         bool // the folder must be empty
	FromStep      int  // resume from the checkpoint of this step; 0: from the newest
	AcceptNewData bool
	Trace         bool          // of every step
	Hosts         plan.Hosts    // processes for the ranks; nil: this one
	Wait          time.Duration // for those processes
	System        *actor.ActorSystem
	Logger        *slog.Logger
}

// Env is what an attempt asks of its run, and tells it.
type Env struct {
	Context context.Context // its end ends the placing of ranks
	// Event gets what happens while the actors train.
	Event func(event.Event)
	Warn  func(format string, args ...any)
	// Begun is told when the folder is the run's: Info and the other fields are there.
	Begun func(*Attempt)
	// Saved is told of a checkpoint as soon as it is written.
	Saved    func(state trainstate.State, dir string)
	Requests func(step int64) []actors.Request // for an attempt that begins after a step
	// Marks are the run's history, and Unmarked is told why one can't be written.
	Marks    *runlog.Marks
	Unmarked func(error)
}

// Attempt is an attempt at a run that has been opened. The exported fields are there when Env.Begun is called.
type Attempt struct {
	Info        event.Info
	Step        int64 // after which it begins
	LastValLoss *float64
	Model       *stages.Model
	Tokenizer   tokenizer.Tokenizer // nil: the data are no text
	Text        *corpus.Text

	cfg     *config.Config // resolved
	o       Options
	env     Env
	devices *devices
	byAuto  bool   // device.kind = "auto" chose a GPU
	noGPU   string // why "auto" takes no GPU after all; "": it may

	output  *rundir.Dir
	back    *rundir.Resumed        // nil: the run begins
	ckpt    *checkpoint.Checkpoint // that the weights come from; nil: there is none
	kept    rundir.Kept            // files of what the run began from
	tokens  *corpus.TokenStore
	changed corpus.Comparison
	data    *corpus.Data
	plan    *plan.Plan
	start   trainstate.State
	load    stages.Source
	feed    corpus.Feed
	inPlace bool // there is no memory for copies of the weights that are saved
	metrics *telemetry.Writer
	stats   *telemetry.StatsWriter
	sampler *runlog.Sampler // nil: no text is written
	memory  func() []int64  // of each rank
	spec    actors.Spec
}

// Open opens everything that a run needs; its configuration stays as it is. ctx ends the wait for processes. What it
// opened before an error is closed.
func Open(ctx context.Context, cfg *config.Config, o Options, env Env) (*Attempt, error) {
	a := &Attempt{cfg: cfg, o: o, env: env}
	err := a.open(ctx)
	if err != nil && a.byAuto && !a.begun() {
		// device.kind = "auto" chose the GPU: fall back to the CPU if it cannot run this model.
		why := fmt.Sprintf("the GPU was left out: %v; the CPU is used", err)
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

// Start has the actors train. After an error everything is closed.
func (a *Attempt) Start() (*actors.Run, error) {
	run, err := actors.Start(a.spec)
	if err != nil {
		return nil, a.fail(err)
	}
	a.devices.watch(run)
	return run, nil
}

// fail closes what is open, and marks an error before which nothing was changed.
func (a *Attempt) fail(err error) error {
	if err = checkpoint.AsNoSpace(err); !a.begun() {
		err = plan.AsSetup(err)
	}
	return errors.Join(err, a.Close())
}

// begun reports whether the folder has been changed.
func (a *Attempt) begun() bool { return a.output != nil && a.output.Begun }

// Close closes what Open has opened, in reverse. The memory that devices have taken can still be asked for.
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
	if a.output != nil {
		errs = append(errs, a.output.Close())
	}
	// Whoever keeps the attempt keeps no text by it.
	a.metrics, a.stats, a.data, a.ckpt, a.output = nil, nil, nil, nil, nil
	a.feed, a.spec = corpus.Feed{}, actors.Spec{}
	return errors.Join(errs...)
}

// Event is told of steps and checkpoints, in their order, while the actors train.
func (a *Attempt) Event(e event.Event) { a.sampler.Event(e) }

// EndTexts ends the writing of texts; cut ends the last one where it is.
func (a *Attempt) EndTexts(cut bool) error {
	s := a.sampler
	a.sampler = nil
	return s.End(cut)
}

// SavedBefore is the step of the newest checkpoint before a step; 0: there is none.
func (a *Attempt) SavedBefore(step int64) (last int64) {
	if a.output == nil {
		return 0
	}
	steps, err := a.output.Store.Steps()
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
