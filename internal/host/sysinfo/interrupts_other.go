//go:build !linux

package sysinfo

import "time"

// InterruptTime is not known here.
func InterruptTime() time.Duration { return 0 }
