package checkpoint

import "errors"

// The errors that callers branch on. Each comes wrapped with the place and the
// numbers.
var (
	// ErrNone: the folder holds no checkpoint.
	ErrNone = errors.New("no checkpoint")
	// ErrAllDamaged: it holds some, and none is intact.
	ErrAllDamaged = errors.New("no intact checkpoint")
	// ErrDamaged: the checkpoint is not what its manifest says.
	ErrDamaged = errors.New("the checkpoint is damaged")
	// ErrNotCheckpoint: the folder is no checkpoint, nor does it hold any.
	ErrNotCheckpoint = errors.New("not a checkpoint")
	// ErrVersion: the manifest is of a format version that this program can't read.
	ErrVersion = errors.New("unknown checkpoint format version")
	// ErrNoSpace: the disk is full, or would be.
	ErrNoSpace = errors.New("not enough space on the disk")
	// ErrLocked: another run uses the output folder.
	ErrLocked = errors.New("the output folder is in use")
)
