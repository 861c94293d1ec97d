//go:build unix

package sysinfo

import (
	"syscall"
	"time"
)

// CPUTime is what this process has spent on cores so far, in user and system mode.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
