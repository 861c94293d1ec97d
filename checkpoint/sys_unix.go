//go:build linux || darwin || freebsd

package checkpoint

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil // this file system has nothing to sync for a folder
	}
	return errors.Join(err, d.Close())
}

func freeBytes(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	blocks, size := int64(st.Bavail), int64(st.Bsize) //nolint:unconvert // the types differ between systems
	if size > 0 && blocks > math.MaxInt64/size {
		return math.MaxInt64, nil
	}
	return max(0, blocks*size), nil
}

func isNoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

func isLockedElsewhere(err error) bool { return errors.Is(err, unix.EWOULDBLOCK) }

// lockFile takes the exclusive lock on an open file, or fails at once. The
// system drops it when the file is closed, be it by the process's death.
func lockFile(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
