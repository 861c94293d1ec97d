package troupe

import (
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/run/rundir"
)

// SetFreeMemory makes the machine seem to have n bytes left.
func SetFreeMemory(t testing.TB, bytes int64) {
	old := device.HostFreeBytes
	t.Cleanup(func() { device.HostFreeBytes = old })
	device.HostFreeBytes = func() int64 { return bytes }
}

// SetFS lets runs see their output folder through another file system.
func SetFS(t testing.TB, through func(checkpoint.FS) checkpoint.FS) {
	old := rundir.View
	t.Cleanup(func() { rundir.View = old })
	rundir.View = through
}
