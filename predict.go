package troupe

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// PredictOptions say what to predict.
type PredictOptions struct {
	ModelOptions
	Data       []string // files or globs; none: the validation data of the run that the checkpoint is from
	Microbatch int      // samples at a time; 0: 64
}

// Prediction is what a model gives out for samples First, First+1, …: each of its outputs,
// [samples, …].
type Prediction struct {
	First   int
	Outputs []stages.Output
}

// Output is the one of a name; none if the model has none of that name.
func (p Prediction) Output(name string) (tensorops.Array, bool) {
	for _, o := range p.Outputs {
		if o.Name == name {
			return o.Array, true
		}
	}
	return tensorops.Array{}, false
}

// Predict runs a model that is no language model forward over samples, and calls emit with what its layers give
// out (stages.Pass.Collect, stages.Graph.Output), such as a classifier's "logits", in the order of the samples. The
// result is as Evaluate's.
func Predict(ctx context.Context, o PredictOptions, emit func(Prediction) error) (EvalResult, error) {
	t, err := openTrained(o.ModelOptions, false)
	if err != nil {
		return EvalResult{}, err
	}
	if t.model.Config.Language() {
		err = &SetupError{Err: fmt.Errorf("%w: %s is a language model; engine generate continues a text with it", ErrOptions, t.ckpt.Dir())}
		return EvalResult{}, errors.Join(err, t.close())
	}
	if o.Microbatch <= 0 {
		o.Microbatch = 64
	}
	res, err := t.evaluateSamples(ctx, o, emit)
	return res, errors.Join(err, t.close())
}

// evaluateSamples is Evaluate of such a model; emit may be nil.
func (t *trained) evaluateSamples(ctx context.Context, o PredictOptions, emit func(Prediction) error) (res EvalResult, err error) {
	c, cfg, err := t.samplesOf(o.Data)
	if err != nil {
		return res, plan.AsSetup(err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	src, err := t.forwardFeed(c, cfg)
	if err != nil {
		return res, plan.AsSetup(err)
	}
	if src.windows == 0 {
		return res, &SetupError{Err: fmt.Errorf("%w: the run of %s had no data to validate on; name some", ErrOptions, t.ckpt.Dir())}
	}
	spec, err := t.forwardSpec(src, o.Microbatch)
	if err != nil {
		return res, err
	}
	spec.Collect = emit != nil
	loss, failed := math.NaN(), error(nil)
	var metrics map[string]float64
	ctx, cancel := context.WithCancel(ctx) // by what emit returns, too
	defer cancel()
	spec.OnEvent = func(e event.Event) {
		switch e := e.(type) {
		case StepEvent:
			if e.ValLoss != nil {
				loss, metrics = *e.ValLoss, e.ValMetrics
			}
		case actors.OutputEvent:
			if failed == nil {
				if failed = emit(Prediction{e.Microbatch * o.Microbatch, e.Outputs}); failed != nil {
					cancel()
				}
			}
		}
	}
	run, err := actors.Start(*spec)
	if err != nil {
		return res, err
	}
	stop := contextKill(ctx, run)
	out := run.Wait()
	stop()
	if failed != nil {
		return res, failed
	}
	if err := errors.Join(ctx.Err(), out.Err); err != nil {
		return res, err
	}
	res = EvalResult{Loss: loss, Perplexity: math.Exp(loss), Tokens: int64(src.windows) * int64(src.context), Windows: src.windows, Metrics: metrics, Samples: cfg == nil || !cfg.Text(), Step: t.ckpt.Step(), From: t.ckpt.Dir()}
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		err = fmt.Errorf("%w: the loss is %g: %s", ErrNotFinite, loss, t.suspicion())
	}
	return res, err
}

// samplesOf opens the data to run forward over: files that are read like those of the run that the model is from, or its
// validation data.
func (t *trained) samplesOf(files []string) (*corpora, *config.Config, error) {
	stored, err := t.ckpt.File(rundir.ConfigFile)
	if err != nil {
		return nil, nil, err
	}
	cfg, err := config.ParseStored(rundir.ConfigFile, stored)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", t.ckpt.Dir(), err)
	}
	if len(files) > 0 {
		c, err := t.named(cfg, files)
		return c, cfg, err
	}
	c, err := loadData(cfg, t.tokenizer, rundir.Talk{}, nil, nil)
	if err != nil {
		return nil, cfg, err
	}
	if fields := c.fields; fields != nil {
		err = plan.SameFields(t.model.Config.Fields, fields)
	}
	if err != nil {
		return nil, cfg, errors.Join(fmt.Errorf("%s: %w", t.ckpt.Dir(), err), c.Close())
	}
	return c, cfg, nil
}

// named opens files that are read like the run's data, which need not be there any more.
func (t *trained) named(cfg *config.Config, files []string) (c *corpora, err error) {
	if cfg.Text() {
		c = &corpora{tokenizer: t.tokenizer}
		if files, err = data.Files(files); err == nil {
			c.val, err = c.read(cfg, files, nil)
			c.train = c.val
		}
	} else {
		cfg.Data.Train, cfg.Data.Val, cfg.Data.ValFraction = files, nil, 0
		for _, f := range t.model.Config.Fields {
			if f.Classes > 0 { // as many, by the same ids, though some don't occur
				cfg.Data.Classes, cfg.Data.ClassNames = f.Classes, f.Names
			}
		}
		if c, err = openSamples(cfg); err == nil {
			err = plan.SameFields(t.model.Config.Fields, c.fields)
			c.samples.Val = c.samples.Train
		}
	}
	if err != nil {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
		return nil, fmt.Errorf("%s: %w", t.ckpt.Dir(), unreadableData(err))
	}
	return c, nil
}

// forwardFeed are all samples to validate on.
func (t *trained) forwardFeed(c *corpora, cfg *config.Config) (feed, error) {
	all := *cfg
	all.Run.EvalBatches = int((c.valLen() + int64(cfg.Batch.Sequences) - 1) / int64(cfg.Batch.Sequences))
	return feedOf(c, &all, 0)
}

// forwardSpec is a run of no steps: one validation.
func (t *trained) forwardSpec(src feed, microbatch int) (*actors.Spec, error) {
	train, err := scheduler.Generate(scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: 1})
	if err != nil {
		return nil, err
	}
	eval, err := scheduler.Generate(scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: (src.windows + microbatch - 1) / microbatch, ForwardOnly: true})
	if err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	return &actors.Spec{
		Run: id, Device: t.device, Routes: []stages.Route{{}},
		Build: func(_ int, s tensorops.Stream) (actors.Compute, error) { return t.stage(s) },
		Table: train, EvalTable: eval, Data: src.Source, MicrobatchSize: microbatch, Context: src.context, Sequences: microbatch,
	}, nil
}

// ClassNames are the names of the classes that a checkpoint's model was trained on, by their ids; nil: they have none.
func ClassNames(o ModelOptions) ([]string, error) {
	t, err := openTrained(o, false)
	if err != nil {
		return nil, err
	}
	for _, f := range t.model.Config.Fields {
		if len(f.Names) > 0 {
			return f.Names, t.close()
		}
	}
	return nil, t.close()
}
