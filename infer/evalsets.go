package infer

import (
	"context"
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/trained"
)

// Evaluate computes a model's loss on a text, in consecutive windows. Each
// token except the first is a target once, and the last window may be shorter. Evaluate runs
// a forward-only schedule on the actors of training. If the loss is not finite, the error is
// ErrNotFinite and the result has the loss.
func Evaluate(ctx context.Context, o EvalOptions) (res EvalResult, err error) {
	err = evaluate(ctx, o, false, func(of EvalResult) error {
		res = of
		return nil
	})
	return res, err
}

// EvaluateSets is Evaluate for each validation set of the model's run, in the order of config.Config.EvalSets. It calls emit with each
// result. It ends at the first error, or if a loss is not finite, after emit.
func EvaluateSets(ctx context.Context, o EvalOptions, emit func(EvalResult) error) error {
	return evaluate(ctx, o, true, emit)
}

// evaluate evaluates the set of the options. If they name none, it evaluates the deciding one, or all.
func evaluate(ctx context.Context, o EvalOptions, all bool, emit func(EvalResult) error) error {
	if err := o.check(); err != nil {
		return err
	}
	m, err := open(o.ModelOptions, false)
	if err != nil {
		return err
	}
	return errors.Join(evaluateModel(ctx, m, o, all, emit), m.Close())
}

func (o EvalOptions) check() error {
	if len(o.Data) > 0 && o.Set != "" {
		return fmt.Errorf("%w: both files and the validation set %q are named; leave one of them out", ErrOptions, o.Set)
	}
	if f := o.Format; f != "" && f != "text" && f != "documents" && f != "uint16" && f != "uint32" {
		return fmt.Errorf("%w: unknown format %q; use text, documents, uint16 or uint32", ErrOptions, f)
	}
	if w := o.TooLong; w != "" && w != "cut" && w != "refuse" {
		return fmt.Errorf("%w: unknown value %q for too long documents; use cut or refuse", ErrOptions, w)
	}
	if s := o.InvalidUTF8; s != "" && s != config.UTF8OrRefuse && s != config.UTF8OrBytes {
		return fmt.Errorf("%w: unknown value %q for text that is not UTF-8; use refuse or bytes", ErrOptions, s)
	}
	if s := o.SpecialTokens; s != "" && s != config.SpecialAsTokens && s != config.SpecialAsText {
		return fmt.Errorf("%w: unknown value %q for special tokens; use tokens or text", ErrOptions, s)
	}
	return nil
}

// setsOf returns the names of the sets to evaluate: "" alone if files are named, or if the run has no [[eval]].
func setsOf(m *trained.Model, o EvalOptions, all bool) ([]string, error) {
	if len(o.Data) > 0 {
		return []string{""}, nil
	}
	cfg, err := corpus.StoredConfig(m.Checkpoint)
	switch {
	case err != nil:
		return nil, err
	case cfg == nil && o.Set != "":
		return nil, &SetupError{Err: fmt.Errorf("%w: %s has no run configuration, so it has no validation set %q; name files",
			ErrOptions, m.Checkpoint.Dir(), o.Set)}
	case o.Set != "":
		return []string{o.Set}, nil
	case cfg == nil || len(cfg.Eval) == 0:
		return []string{""}, nil
	case all:
		return cfg.EvalSets(), nil
	}
	return cfg.EvalSets()[:1], nil
}

func evaluateModel(ctx context.Context, m *trained.Model, o EvalOptions, all bool, emit func(EvalResult) error) error {
	sets, err := setsOf(m, o, all)
	if err != nil {
		return err
	}
	each := func(o EvalOptions) (EvalResult, error) { return evaluateText(ctx, m, o) }
	if !m.Shape.Config.Language() {
		if o.Format != "" {
			return fmt.Errorf("%w: the format %q has no effect on this model: its data is read in the format of its run; "+
				"leave the format out", ErrOptions, o.Format)
		}
		s, err := openSamples(m, o.Data)
		if err != nil {
			return err
		}
		defer func() { _ = s.data.Close() }() // only read
		each = func(o EvalOptions) (EvalResult, error) { return s.evaluate(ctx, o.Set, max(o.Microbatch, 4), nil) }
	}
	for _, o.Set = range sets {
		res, err := each(o)
		if res.Set = o.Set; err == nil || errors.Is(err, ErrNotFinite) {
			err = errors.Join(emit(res), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
