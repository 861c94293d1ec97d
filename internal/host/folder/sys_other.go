//go:build !(linux || darwin || freebsd)

package folder

import (
	"errors"
	"os"
)

// On the systems of this file Troupe builds and runs, with less protection:
// folders are not synced, the free space is unknown, an output folder is not
// locked.

func syncFolder(*os.File) error { return nil }

func freeBytes(*os.File) (int64, error) { return 0, errors.ErrUnsupported }

func isLockedElsewhere(error) bool { return false }

func lockFile(*os.File) error { return nil }

func lockedElsewhere(File) (bool, error) { return false, nil }
