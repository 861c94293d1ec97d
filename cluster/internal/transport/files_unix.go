//go:build linux || darwin || freebsd

package transport

import "golang.org/x/sys/unix"

// openFiles returns how many files this process may have open. Go's runtime has raised the soft limit to the hard one.
func openFiles() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return LimitConnections + filesKept
	}
	return uint64(limit.Cur) //nolint:unconvert // it is signed on some systems
}
