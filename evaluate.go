package troupe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/data"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
)

// EvalOptions say what to evaluate.
type EvalOptions struct {
	ModelOptions
	Data       []string // files or globs; none: the validation text of the run that the checkpoint is from
	Format     string   // "text" or "uint16"; "": the run's
	Microbatch int      // sequences at a time; 0: 4
}

// EvalResult is the loss over a whole text.
type EvalResult struct {
	Loss       float64 `json:"loss"` // mean over target tokens, in nats
	Perplexity float64 `json:"perplexity"`
	Tokens     int64   `json:"tokens"` // targets: every token but the first, once
	Windows    int     `json:"windows"`
	Step       int     `json:"step"` // of the checkpoint
	From       string  `json:"from"`
}

// Evaluate computes a model's loss on a text: windows one after the other, each
// token but the first a target once, the last window as short as it is. It runs
// a forward-only schedule on the same actors as training.
func Evaluate(ctx context.Context, o EvalOptions) (EvalResult, error) {
	if f := o.Format; f != "" && f != "text" && f != "uint16" {
		return EvalResult{}, fmt.Errorf("%w: the format %q; it is text or uint16", ErrOptions, f)
	}
	t, err := openTrained(o.ModelOptions, false)
	if err != nil {
		return EvalResult{}, err
	}
	res, err := t.evaluate(ctx, o)
	return res, errors.Join(err, t.close())
}

func (t *trained) evaluate(ctx context.Context, o EvalOptions) (res EvalResult, err error) {
	c, err := t.evalData(o)
	if err != nil {
		return res, &SetupError{err}
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	context := t.model.Config.Context
	src := &source{corpora: c, context: context, windows: data.Sequential(c.val.Len(), context)}
	if len(src.windows) == 0 {
		return res, &SetupError{fmt.Errorf("%w: the text has %d tokens, a loss needs 2", data.ErrTooShort, c.val.Len())}
	}
	if o.Microbatch <= 0 {
		o.Microbatch = 4
	}
	spec, err := t.evalSpec(src, o.Microbatch)
	if err != nil {
		return res, err
	}
	loss := math.NaN()
	spec.OnEvent = func(e actors.Event) {
		if s, ok := e.(StepEvent); ok && s.ValLoss != nil {
			loss = *s.ValLoss
		}
	}
	run, err := actors.Start(*spec)
	if err != nil {
		return res, err
	}
	stop := contextKill(ctx, run)
	out := run.Wait()
	stop()
	if errors.Is(out.Err, data.ErrVocab) {
		out.Err = &SetupError{out.Err}
	}
	if err := errors.Join(ctx.Err(), out.Err); err != nil {
		return res, err
	}
	return EvalResult{Loss: loss, Perplexity: math.Exp(loss), Tokens: c.val.Len() - 1, Windows: len(src.windows), Step: t.ckpt.Step(), From: t.ckpt.Dir()}, nil
}

// contextKill ends a run when the context ends.
func contextKill(ctx context.Context, run *actors.Run) (stop func() bool) {
	return context.AfterFunc(ctx, run.Kill)
}

// evalData opens the text, as c.val.
func (t *trained) evalData(o EvalOptions) (*corpora, error) {
	c := &corpora{tokenizer: t.tokenizer}
	stored, err := t.ckpt.File(configFile)
	if len(o.Data) == 0 && err != nil {
		return nil, fmt.Errorf("%s does not say what it was validated on; name a text", t.ckpt.Dir())
	}
	cfg := &config.Config{}
	if err == nil {
		if cfg, err = config.Parse(configFile, stored, nil, os.LookupEnv); err != nil {
			return nil, fmt.Errorf("%s: %w", t.ckpt.Dir(), err)
		}
	}
	if o.Format != "" {
		cfg.Data.Format = o.Format
	}
	cfg.Model.Vocab = t.model.Config.Vocab
	if t.tokenizer == nil && cfg.Data.Format != "uint16" {
		return nil, fmt.Errorf("%s has no %s that is known here; without one only token ids (format uint16) can be evaluated", t.ckpt.Dir(), tokensFile)
	}
	switch {
	case len(o.Data) > 0:
		c.val, err = c.files(cfg, o.Data)
	case len(cfg.Data.Val) > 0:
		c.val, err = c.open(cfg, "data.val", cfg.Data.Val)
	default:
		if c.train, err = c.open(cfg, "data.train", cfg.Data.Train); err == nil {
			_, c.val, err = data.Split(c.train, cfg.Data.ValFraction)
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// evalSpec is a run of no steps: one validation.
func (t *trained) evalSpec(src *source, microbatch int) (*actors.Spec, error) {
	train, err := scheduler.Generate(scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: 1})
	if err != nil {
		return nil, err
	}
	n := (len(src.windows) + microbatch - 1) / microbatch
	eval, err := scheduler.Generate(scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: n, ForwardOnly: true})
	if err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	return &actors.Spec{
		Run: id, Device: t.device,
		Build: func(_ int, s tensorops.Stream) (actors.Compute, error) { return t.stage(s) },
		Table: train, EvalTable: eval, Data: src, MicrobatchSize: microbatch, Context: src.context, Sequences: microbatch,
	}, nil
}
