// Package trainstate has what a checkpoint holds beside the model, and what the stages of a run and
// the folder's side agree on when they write one. It knows neither actors nor files.
package trainstate

import (
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/internal/data"
)

// State is what a checkpoint holds beside the model: trainer.json.
type State struct {
	FormatVersion int       `json:"format_version"`
	Run           uuid.UUID `json:"run"`
	Step          int64     `json:"step"`    // finished steps; the data's position follows from it
	Updates       int64     `json:"updates"` // steps that were not skipped
	Tokens        int64     `json:"tokens"`  // trained on
	// SkippedInARow are the last steps that were skipped, if the last one was.
	SkippedInARow int64    `json:"skipped_in_a_row,omitempty"`
	BestStep      int64    `json:"best_step,omitempty"`
	BestValLoss   *float64 `json:"best_val_loss,omitempty"`
	FirstValLoss  *float64 `json:"first_val_loss,omitempty"` // before the first step
	TrainTokens   int64    `json:"train_tokens"`             // in the training data
	Seed          uint64   `json:"seed"`
	Kernels       string   `json:"kernels"` // the device's path; bits are the same within one
	Optimizer     string   `json:"optimizer"`
	// Data is what it was trained and validated on so far.
	Data        Data       `json:"data"`
	EvalWindows int        `json:"eval_windows"`       // of one validation
	EvalSet     string     `json:"eval_set,omitempty"` // the [[eval]] that decides which checkpoint is the best; "": data.val
	Decisions   []Decision `json:"decisions,omitempty"`
}

// Data identifies the texts of a run by their content.
type Data struct {
	Train data.Identity  `json:"train"`
	Val   *data.Identity `json:"val,omitempty"` // nil: a part of the training files
	// Evals are those of the sets in [[eval]], by name.
	Evals map[string]data.Identity `json:"evals,omitempty"`
	// Sources are the files of each [[data.source]], by name. Train is empty with them.
	Sources map[string]data.Identity `json:"sources,omitempty"`
}

// Decision is a user's choice that changed how a run resumed.
type Decision struct {
	Step   int64     `json:"step"` // from which it resumed
	Time   time.Time `json:"time"`
	Kind   string    `json:"kind"` // FromStep or NewData
	Detail string    `json:"detail"`
}

// Kinds of decisions.
const (
	FromStep = "from_step"       // the step was named, and newer checkpoints renamed
	NewData  = "accept_new_data" // the data had changed
)

// Version is the version of State. Up to version 1 training windows
// were drawn with replacement, instead of each once an epoch.
const Version = 2

// Place is where a tensor's numbers go in a checkpoint.
type Place struct {
	Tensor string
	File   string
	Offset int64 // bytes
}

// Others are the stages in other processes that write their parts of a checkpoint themselves.
type Others struct {
	Attempt uuid.UUID
	// Holds reports whether a tensor is theirs.
	Holds func(tensor string) bool
	// Write lets them write their tensors, whose CRC-32C it returns. Where some can't it fails,
	// when none writes any more.
	Write func(places []Place) (sums []uint32, err error)
}

// NotWrittenError: a checkpoint was not written, because of tensors that are not what their stages say they have
// written.
type NotWrittenError struct {
	Tensors []string
	Err     error
}

func (e *NotWrittenError) Error() string { return e.Err.Error() }
func (e *NotWrittenError) Unwrap() error { return e.Err }
