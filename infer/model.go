package infer

import (
	"errors"

	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/trained"
)

// ModelOptions say which trained model to use, and on which device.
type ModelOptions struct {
	From string // a run's output folder, a checkpoint, a Hugging Face directory or a GGUF file of a supported family
	// EMA uses the moving averages of the weights that a run with optimizer.ema has.
	EMA bool
	// Adapter is a directory of PEFT with an adapter of the model; "": none. A run with an adapter is opened with it.
	Adapter string
	Device  string // "cuda", or one GPU such as "cuda:1"; "": the CPU
	Threads int    // CPU threads; 0: one for each core
	Kernels string // CPU kernels; "": the fastest
	// DType is the number type, "float32" or "bfloat16"; "": that of the model's run, or float32 without
	// a run.
	DType string
	// ChatTemplate writes conversations as text in place of the model's own template: the name of a built-in one, such as "chatml", or
	// the path of a Jinja file; "": the model's own. Only text and conversations have an effect.
	ChatTemplate string
}

// ErrOptions: an option is invalid, such as a number out of its range.
var ErrOptions = plan.ErrOptions

// ErrMemory: the model does not fit the memory of the device.
var ErrMemory = plan.ErrMemory

// ErrNotFinite: the model computed NaN or infinity.
var ErrNotFinite = errors.New("not a finite number")

// ErrNoTemplate: the model has no chat template, which messages need.
var ErrNoTemplate = corpus.ErrNoTemplate

// ErrTemplate: the model's chat template can't be used.
var ErrTemplate = corpus.ErrTemplate

// ErrContext: a prompt has more tokens than the context.
var ErrContext = errors.New("the prompt does not fit the context")

// SetupError: the model, the data or the options cannot be used. Its field Err is the
// cause.
type SetupError = plan.SetupError

// open opens a model. With tokenize it must have a supported tokenizer.
func open(o ModelOptions, tokenize bool) (*trained.Model, error) {
	return trained.Open(trained.Options(o), tokenize)
}
