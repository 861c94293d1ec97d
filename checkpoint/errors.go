package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"syscall"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// The errors on which callers branch. Each is wrapped with the place and the numbers.
var (
	// ErrNone: the folder holds no checkpoint.
	ErrNone = errors.New("no checkpoint")
	// ErrAllDamaged: the folder holds checkpoints, but none is intact.
	ErrAllDamaged = errors.New("no intact checkpoint")
	// ErrNotCheckpoint: the folder is not a checkpoint, nor does it hold any.
	ErrNotCheckpoint = errors.New("not a checkpoint")
	// ErrNoSpace: the disk is full, or would be.
	ErrNoSpace = errors.New("not enough space on the disk")
	// ErrLocked: another run uses the output folder.
	ErrLocked = errors.New("the output folder is in use")
)

// Reasons why a checkpoint can't be used. Only ErrDamaged proves that it is worthless; with the
// others it may be repaired.
var (
	// ErrDamaged: everything was read, and it differs from the manifest.
	ErrDamaged = errors.New("the checkpoint is damaged")
	// ErrMissing: a file, or the manifest, is missing.
	ErrMissing = errors.New("the checkpoint is incomplete")
	// ErrUnreadable: something could not be read, or is not a file or folder of a checkpoint.
	// Nothing is known about its content.
	ErrUnreadable = folder.ErrUnreadable
	// ErrVersion: the format version is newer than those that this program knows.
	ErrVersion = errors.New("a newer program's format")
)

// StepError is an error about the checkpoint of a step that may not be skipped.
type StepError struct {
	Step int
	Err  error
}

func (e *StepError) Error() string { return e.Err.Error() }
func (e *StepError) Unwrap() error { return e.Err }

// mayPass are the system errors that may disappear a moment later.
var mayPass = []error{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO, syscall.EAGAIN, syscall.EINTR, syscall.EBUSY, syscall.ESTALE,
	syscall.ETIMEDOUT,
	io.ErrUnexpectedEOF, // a short read
}

// MayPass reports whether an error of reading or writing may disappear without a change to the run:
// another process uses the output folder, the disk is full, or the system could not do something at
// the moment. Missing permissions and links do not disappear.
func MayPass(err error) bool {
	return errors.Is(err, ErrLocked) || errors.Is(err, ErrNoSpace) || isNoSpace(err) ||
		slices.ContainsFunc(mayPass, func(e error) bool { return errors.Is(err, e) })
}

// TryAgain reports whether a failed start is worth repeating: another process uses the output
// folder, or a readable file could not be read at the moment.
func TryAgain(err error) bool {
	return errors.Is(err, ErrLocked) || errors.Is(err, ErrUnreadable) && MayPass(err) && !errors.Is(err, ErrNoSpace)
}

// fault is an error with the kind of its problem.
type fault struct {
	kind ProblemKind
	err  error
}

func (f *fault) Error() string   { return f.err.Error() }
func (f *fault) Unwrap() []error { return []error{f.kind.state().err(), f.err} }

func faultf(kind ProblemKind, format string, args ...any) error {
	return &fault{kind, fmt.Errorf(format, args...)}
}

// asFault gives an error of reading a kind, if it has none yet.
func asFault(err error) error {
	if err == nil {
		return nil
	}
	return toFault(err)
}

func toFault(err error) *fault {
	var f *fault
	switch {
	case errors.As(err, &f):
		return &fault{f.kind, err}
	case errors.Is(err, fs.ErrNotExist):
		return &fault{Missing, err}
	default:
		return &fault{Unreadable, err}
	}
}

// AsNoSpace adds ErrNoSpace to the system's error for a full disk.
func AsNoSpace(err error) error {
	if isNoSpace(err) && !errors.Is(err, ErrNoSpace) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
