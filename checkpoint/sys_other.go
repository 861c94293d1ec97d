//go:build !(linux || darwin || freebsd)

package checkpoint

import (
	"errors"
	"os"
)

// On the systems of this file Troupe builds and runs, with less protection:
// folders are not synced, the free space is unknown, an output folder is not
// locked.

func syncDir(string) error { return nil }

func freeBytes(string) (int64, error) { return 0, errors.ErrUnsupported }

func isNoSpace(error) bool { return false }

func isLockedElsewhere(error) bool { return false }

func lockFile(*os.File) error { return nil }
