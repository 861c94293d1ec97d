package troupe

import (
	"context"

	"github.com/troupe-ml/troupe/infer"
)

// What a trained model is used for: package infer has the functions and types.
type (
	// ModelOptions say which trained model to use, and on what.
	ModelOptions = infer.ModelOptions
	// GenerateOptions say what to write.
	GenerateOptions = infer.GenerateOptions
	// GenerateReport says what was written, and what of the text the model did not see.
	GenerateReport = infer.GenerateReport
	// Generator is an open model that writes one text after the other.
	Generator = infer.Generator
	// EvalOptions say what to evaluate.
	EvalOptions = infer.EvalOptions
	// EvalResult is the loss over a whole text.
	EvalResult = infer.EvalResult
	// DocumentCounts say what of some documents did not fit the context.
	DocumentCounts = infer.DocumentCounts
	// PredictOptions say what to predict.
	PredictOptions = infer.PredictOptions
	// Prediction is what a model gives out for some samples.
	Prediction = infer.Prediction
	// ExportOptions say what Export writes.
	ExportOptions = infer.ExportOptions
	// Exported is what Export has written.
	Exported = infer.Exported
)

// ErrOptions: a number is out of its range.
var ErrOptions = infer.ErrOptions

// ErrNotFinite: a model computes NaN or infinity where a number is needed.
var ErrNotFinite = infer.ErrNotFinite

// Generate continues a prompt, or answers a conversation: see infer.Generate.
func Generate(ctx context.Context, o GenerateOptions, emit func(text []byte) error) error {
	return infer.Generate(ctx, o, emit)
}

// OpenGenerator opens a model. Its weights are read with the first text.
func OpenGenerator(o ModelOptions) (*Generator, error) { return infer.OpenGenerator(o) }

// Evaluate computes a model's loss on a text: see infer.Evaluate.
func Evaluate(ctx context.Context, o EvalOptions) (EvalResult, error) { return infer.Evaluate(ctx, o) }

// Predict runs a model forward over samples: see infer.Predict.
func Predict(ctx context.Context, o PredictOptions, emit func(Prediction) error) (EvalResult, error) {
	return infer.Predict(ctx, o, emit)
}

// ClassNames are the names of the classes that a checkpoint's model was trained on, by their ids; nil: they have none.
func ClassNames(o ModelOptions) ([]string, error) { return infer.ClassNames(o) }

// Export writes a language model as a Hugging Face directory: see infer.Export.
func Export(ctx context.Context, o ExportOptions) (Exported, error) { return infer.Export(ctx, o) }
