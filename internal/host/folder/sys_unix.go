//go:build linux || darwin || freebsd

package folder

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

func syncFolder(f *os.File) error {
	err := f.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil // this file system has nothing to sync for a folder
	}
	return err
}

func freeBytes(f *os.File) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: f.Name(), Err: err}
	}
	blocks, size := int64(st.Bavail), int64(st.Bsize) //nolint:unconvert // the types differ between systems
	if size > 0 && blocks > math.MaxInt64/size {
		return math.MaxInt64, nil
	}
	return max(0, blocks*size), nil
}

func isLockedElsewhere(err error) bool { return errors.Is(err, unix.EWOULDBLOCK) }

// lockFile takes the exclusive lock on an open file, or fails at once. The
// system drops it when the file is closed, be it by the process's death.
func lockFile(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// lockedElsewhere reports whether another process, or another open file of this one, has the lock on a file.
func lockedElsewhere(f File) (bool, error) {
	own, ok := f.(*file)
	if !ok {
		return false, errors.ErrUnsupported
	}
	err := unix.Flock(int(own.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if isLockedElsewhere(err) {
		return true, nil
	}
	return false, errors.Join(err, unix.Flock(int(own.Fd()), unix.LOCK_UN))
}
