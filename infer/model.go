package infer

import (
	"errors"

	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/trained"
)

// ModelOptions say which trained model to use, and on what.
type ModelOptions struct {
	From    string // a run's output folder, a checkpoint, or any Hugging Face directory of a known family
	Device  string // "cuda", or a GPU by its number, such as "cuda:1"; else the CPU
	Threads int    // 0: all cores
	Kernels string // "": the best
	// DType is what to compute in, "float32" or "bfloat16"; "": what the run computed in that the
	// model is from, or float32.
	DType string
}

// ErrOptions: a number is out of its range.
var ErrOptions = plan.ErrOptions

// ErrMemory: the model does not fit this machine's memory.
var ErrMemory = plan.ErrMemory

// ErrNotFinite: a model computes NaN or infinity where a number is needed.
var ErrNotFinite = errors.New("not a finite number")

// SetupError says that the model, the data or the options are not what a function needs. Its field Err is the
// cause.
type SetupError = plan.SetupError

// open opens a model; tokenize says that it must have a tokenizer that this program knows.
func open(o ModelOptions, tokenize bool) (*trained.Model, error) {
	return trained.Open(trained.Options(o), tokenize)
}
