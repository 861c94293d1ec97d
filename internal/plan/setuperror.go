package plan

import (
	"errors"

	"github.com/troupe-ml/troupe/checkpoint"
)

// ErrMemory: the model does not fit this machine's memory.
var ErrMemory = errors.New("not enough memory")

// ErrOptions: a caller's option is out of its range.
var ErrOptions = errors.New("impossible option")

// SetupError says that the configuration, the data or the output folder is not what a run needs.
type SetupError struct{ Err error }

func (e *SetupError) Error() string { return e.Err.Error() }
func (e *SetupError) Unwrap() error { return e.Err }

// AsSetup marks an error of the setup, unless trying again may help. nil stays nil.
func AsSetup(err error) error {
	if err == nil || checkpoint.MayPass(err) || errors.Is(err, ErrNoRoom) || IsLost(err) {
		return err
	}
	return &SetupError{err}
}

// IsLost reports whether a process that computed ranks failed.
func IsLost(err error) bool {
	var lost *LostError
	return errors.As(err, &lost)
}
