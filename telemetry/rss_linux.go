package telemetry

import (
	"os"
	"regexp"
	"strconv"
)

var highWater = regexp.MustCompile(`(?m)^VmHWM:\s*([0-9]+) kB$`)

// PeakRSS returns the most memory that the process has had resident, in bytes;
// 0 where the system doesn't say. getrusage would be shorter, but its figure
// includes what the parent had before it started this program.
func PeakRSS() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	found := highWater.FindSubmatch(status)
	if found == nil {
		return 0
	}
	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}
