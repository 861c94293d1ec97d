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

// The errors that callers branch on. Each comes wrapped with the place and the
// numbers.
var (
	// ErrNone: the folder holds no checkpoint.
	ErrNone = errors.New("no checkpoint")
	// ErrAllDamaged: it holds some, and none is intact.
	ErrAllDamaged = errors.New("no intact checkpoint")
	// ErrNotCheckpoint: the folder is no checkpoint, nor does it hold any.
	ErrNotCheckpoint = errors.New("not a checkpoint")
	// ErrNoSpace: the disk is full, or would be.
	ErrNoSpace = errors.New("not enough space on the disk")
	// ErrLocked: another run uses the output folder.
	ErrLocked = errors.New("the output folder is in use")
)

// What keeps a checkpoint from being used. The first alone is a proof that it is
// worth nothing; the others may be put right.
var (
	// ErrDamaged: all was read, and it is not what its manifest says.
	ErrDamaged = errors.New("the checkpoint is damaged")
	// ErrMissing: a file, or the manifest, is not there.
	ErrMissing = errors.New("the checkpoint is incomplete")
	// ErrUnreadable: something could not be read, or is no file or folder of the
	// checkpoint's own. Nothing is known about its content.
	ErrUnreadable = folder.ErrUnreadable
	// ErrVersion: it is of a format version above those that this program knows.
	ErrVersion = errors.New("a newer program's format")
)

// StepError is about the checkpoint of a step, which is not passed over.
type StepError struct {
	Step int
	Err  error
}

func (e *StepError) Error() string { return e.Err.Error() }
func (e *StepError) Unwrap() error { return e.Err }

// mayPass are the system's errors that can be gone a moment later.
var mayPass = []error{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO, syscall.EAGAIN, syscall.EINTR, syscall.EBUSY, syscall.ESTALE,
	syscall.ETIMEDOUT,
	io.ErrUnexpectedEOF, // a read that was short
}

// MayPass tells whether an error, of reading or of writing, can be gone a moment later without a change to the
// run: another process has the output folder, the disk is full, or the system could not do something at the
// moment. That something may not be read, or is a link, does not pass.
func MayPass(err error) bool {
	return errors.Is(err, ErrLocked) || errors.Is(err, ErrNoSpace) || isNoSpace(err) ||
		slices.ContainsFunc(mayPass, func(e error) bool { return errors.Is(err, e) })
}

// TryAgain tells whether a start that has failed is worth trying again: another process has the output folder, or
// something that may be read could not be read at the moment.
func TryAgain(err error) bool {
	return errors.Is(err, ErrLocked) || errors.Is(err, ErrUnreadable) && MayPass(err) && !errors.Is(err, ErrNoSpace)
}

// fault is an error with a kind of problem.
type fault struct {
	kind ProblemKind
	err  error
}

func (f *fault) Error() string   { return f.err.Error() }
func (f *fault) Unwrap() []error { return []error{f.kind.state().err(), f.err} }

func faultf(kind ProblemKind, format string, args ...any) error {
	return &fault{kind, fmt.Errorf(format, args...)}
}

// asFault gives an error of reading its kind, if it has none yet.
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

// AsNoSpace adds ErrNoSpace to what the system reports on a full disk.
func AsNoSpace(err error) error {
	if isNoSpace(err) && !errors.Is(err, ErrNoSpace) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
