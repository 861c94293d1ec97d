//go:build !unix

package sysinfo

import "time"

// CPUTime is not known here.
func CPUTime() time.Duration { return 0 }
