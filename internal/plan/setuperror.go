package plan

import (
	"errors"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/checkpoint"
)

// ErrMemory: the model does not fit the memory of the device.
var ErrMemory = errors.New("not enough memory")

// ErrOptions: a caller's option is invalid, such as a number out of its range.
var ErrOptions = errors.New("invalid option")

// SetupError: the configuration, the data or the output folder cannot be used for a run.
type SetupError struct{ Err error }

func (e *SetupError) Error() string { return e.Err.Error() }
func (e *SetupError) Unwrap() error { return e.Err }

// AsSetup wraps an error in SetupError, unless another try may succeed. nil stays nil.
func AsSetup(err error) error {
	if err == nil || checkpoint.MayPass(err) || errors.Is(err, ErrNoRoom) || IsLost(err) {
		return err
	}
	return &SetupError{err}
}

// IsLost reports whether an error is that of a failed worker, a LostError, or of its replacement. The run can restart.
func IsLost(err error) bool {
	var lost *LostError
	return errors.As(err, &lost) || errors.Is(err, actors.ErrRenewal)
}
