//go:build unix

package mesh_test

import (
	"syscall"
	"time"
)

// cpuTime is what the process has had of the cores, whoever else uses them.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
