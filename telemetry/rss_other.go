//go:build !linux

package telemetry

// PeakRSS returns the most memory that the process has had resident, in bytes;
// 0 where the system doesn't say, as here.
func PeakRSS() int64 { return 0 }
