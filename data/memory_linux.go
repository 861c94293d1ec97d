package data

import (
	"math"

	"golang.org/x/sys/unix"
)

// memoryBytes returns the machine's memory with its swap space, or the largest
// number if it is unknown.
func memoryBytes() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return math.MaxInt
	}
	return min(int64((uint64(info.Totalram)+uint64(info.Totalswap))*uint64(info.Unit)), math.MaxInt) //nolint:unconvert // the fields are narrower on 32-bit systems
}
