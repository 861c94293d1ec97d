package troupe

import (
	"context"

	"github.com/troupe-ml/troupe/infer"
)

// Use of a trained model. Package infer has the functions and types.
type (
	// ModelOptions say which trained model to use, and on which device.
	ModelOptions = infer.ModelOptions
	// GenerateOptions are the options of Generate: ModelOptions and TextOptions.
	GenerateOptions = infer.GenerateOptions
	// TextOptions say which text to generate: the prompt, the number of tokens, how to choose them. They are the options of
	// Snapshot.Generate and Generator.Generate.
	TextOptions = infer.TextOptions
	// Message is a message of a conversation. Its fields Role (such as "user" or "assistant") and Content are texts.
	Message = infer.Message
	// GenerateReport counts the tokens of a generated text and those of the prompt that the model did not see.
	GenerateReport = infer.GenerateReport
	// Generator is an open model that generates one text after the other.
	Generator = infer.Generator
	// Batch is an open model that generates several texts at once, for any number of callers.
	Batch = infer.Batch
	// Generated is a text of Batch.GenerateAll and Snapshot.GenerateAll: its Index, Text, Report and Err.
	Generated = infer.Generated
	// BatchOptions bound a Batch.
	BatchOptions = infer.BatchOptions
	// BatchStats counts the texts of a Batch.
	BatchStats = infer.BatchStats
	// GenerationDefaults are how a model's generation_config.json says to generate texts.
	GenerationDefaults = infer.Defaults
	// EvalOptions are the options of Evaluate.
	EvalOptions = infer.EvalOptions
	// ChoicesOptions are the options of EvaluateChoices.
	ChoicesOptions = infer.ChoicesOptions
	// ChoicesResult is the accuracy on multiple-choice items.
	ChoicesResult = infer.ChoicesResult
	// Choice is the result of one multiple-choice item.
	Choice = infer.Choice
	// EvalResult is the loss on a text or on samples, with its metrics.
	EvalResult = infer.EvalResult
	// DocumentCounts count the documents and tokens that did not fit the context.
	DocumentCounts = infer.DocumentCounts
	// PredictOptions are the options of Predict.
	PredictOptions = infer.PredictOptions
	// Prediction is the output of a model for some samples.
	Prediction = infer.Prediction
	// ExportOptions are the options of Export.
	ExportOptions = infer.ExportOptions
	// Exported describes what Export has written.
	Exported = infer.Exported
)

// ErrOptions: an option is invalid, such as a number out of its range.
var ErrOptions = infer.ErrOptions

// ErrNotFinite: the model computed NaN or infinity.
var ErrNotFinite = infer.ErrNotFinite

// ErrBusy: as many texts wait as a Batch allows.
var ErrBusy = infer.ErrBusy

// ErrContext: a prompt has more tokens than the context.
var ErrContext = infer.ErrContext

// Generate continues a prompt, or answers a conversation: see infer.Generate.
func Generate(ctx context.Context, o GenerateOptions, emit func(text []byte) error) error {
	return infer.Generate(ctx, o, emit)
}

// OpenGenerator opens a model. It reads the weights when the first text is generated.
func OpenGenerator(o ModelOptions) (*Generator, error) { return infer.OpenGenerator(o) }

// OpenBatch opens a model and reads its weights: see infer.Batch.
func OpenBatch(o ModelOptions, of BatchOptions) (*Batch, error) { return infer.OpenBatch(o, of) }

// Evaluate computes a model's loss on a text: see infer.Evaluate.
func Evaluate(ctx context.Context, o EvalOptions) (EvalResult, error) { return infer.Evaluate(ctx, o) }

// EvaluateSets computes a model's loss on each validation set of its run: see infer.EvaluateSets.
func EvaluateSets(ctx context.Context, o EvalOptions, emit func(EvalResult) error) error {
	return infer.EvaluateSets(ctx, o, emit)
}

// EvaluateChoices scores multiple-choice items: see infer.EvaluateChoices.
func EvaluateChoices(ctx context.Context, o ChoicesOptions) (ChoicesResult, error) {
	return infer.EvaluateChoices(ctx, o)
}

// Predict runs a model forward on samples: see infer.Predict.
func Predict(ctx context.Context, o PredictOptions, emit func(Prediction) error) (EvalResult, error) {
	return infer.Predict(ctx, o, emit)
}

// ClassNames returns the names of the classes that a model was trained on, by id. It is nil if they have no names.
func ClassNames(o ModelOptions) ([]string, error) { return infer.ClassNames(o) }

// Export writes a language model as a Hugging Face directory: see infer.Export.
func Export(ctx context.Context, o ExportOptions) (Exported, error) { return infer.Export(ctx, o) }
