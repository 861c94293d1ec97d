package infer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/trained"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// PredictOptions are the options of Predict.
type PredictOptions struct {
	ModelOptions
	Data       []string // files or patterns; none: the validation data of the model's run
	Microbatch int      // samples at a time; 0: 64
}

// Prediction is the output of a model for the samples First, First+1, …. The first dimension of each output
// is the sample.
type Prediction struct {
	First   int
	Outputs []stages.Output
}

// Output returns the output with a name; ok is false if there is none.
func (p Prediction) Output(name string) (tensorops.Array, bool) {
	for _, o := range p.Outputs {
		if o.Name == name {
			return o.Array, true
		}
	}
	return tensorops.Array{}, false
}

// Predict runs a model, not a language model, forward on samples. It calls emit with the outputs of its layers
// (stages.Pass.Collect, stages.Graph.Output), such as a classifier's "logits", in the order of the samples. The
// result is that of Evaluate.
func Predict(ctx context.Context, o PredictOptions, emit func(Prediction) error) (EvalResult, error) {
	m, err := open(o.ModelOptions, false)
	if err != nil {
		return EvalResult{}, err
	}
	if m.Shape.Config.Language() {
		err = &SetupError{Err: fmt.Errorf("%w: %s is a language model; use engine generate", ErrOptions, m.Checkpoint.Dir())}
		return EvalResult{}, errors.Join(err, m.Close())
	}
	if o.Microbatch <= 0 {
		o.Microbatch = 64
	}
	res, err := predict(ctx, m, o, emit)
	return res, errors.Join(err, m.Close())
}

func predict(ctx context.Context, m *trained.Model, o PredictOptions, emit func(Prediction) error) (res EvalResult, err error) {
	s, err := openSamples(m, o.Data)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, s.data.Close()) }()
	return s.evaluate(ctx, "", o.Microbatch, emit)
}

// sampleData are the samples of a model that is not a language model.
type sampleData struct {
	model *trained.Model
	data  *corpus.Data
	run   *config.Config // of the model
	named bool           // data are named files, which have no sets
}

func openSamples(m *trained.Model, files []string) (*sampleData, error) {
	c, cfg, err := corpus.LoadSamples(readerOf(m), files)
	if err != nil {
		return nil, plan.AsSetup(err)
	}
	return &sampleData{m, c, cfg, len(files) > 0}, nil
}

// evaluate is Evaluate for a validation set; emit may be nil.
func (s *sampleData) evaluate(ctx context.Context, set string, microbatch int, emit func(Prediction) error) (res EvalResult, err error) {
	c, m := s.data, s.model
	if !s.named {
		if c, err = c.OfSet(s.run, set); err != nil {
			return res, plan.AsSetup(err)
		}
	}
	src, err := c.ForwardFeed(s.run)
	if err != nil {
		return res, plan.AsSetup(err)
	}
	if src.Windows == 0 {
		return res, &SetupError{Err: fmt.Errorf("%w: the run of %s had no validation data; name files", ErrOptions, m.Checkpoint.Dir())}
	}
	loss, metrics, err := forwardOn(ctx, m, src, microbatch, emit)
	if err != nil {
		return res, err
	}
	res = EvalResult{Loss: loss, Perplexity: math.Exp(loss), Tokens: int64(src.Windows) * int64(src.Context), Windows: src.Windows,
		Metrics: metrics, Samples: !s.run.Text(), Step: m.Checkpoint.Step(), From: m.Checkpoint.Dir()}
	return res, checkFinite(m, loss)
}

// ClassNames returns the names of the classes that a model was trained on, by id. It is nil if they have no names.
func ClassNames(o ModelOptions) ([]string, error) {
	m, err := open(o, false)
	if err != nil {
		return nil, err
	}
	for _, f := range m.Shape.Config.Fields {
		if len(f.Names) > 0 {
			return f.Names, m.Close()
		}
	}
	return nil, m.Close()
}
