package testrun

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/run/rundir"
)

// Main runs the tests of a package in the module's root folder, which has testdata and examples. It fails if
// goroutines remain.
func Main(m *testing.M) {
	for dir := "."; ; dir = filepath.Join(dir, "..") {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			if err := os.Chdir(dir); err != nil {
				panic(err)
			}
			break
		}
		if abs, err := filepath.Abs(dir); err != nil || abs == filepath.Dir(abs) {
			panic("no go.mod above the tests")
		}
	}
	goleak.VerifyTestMain(m)
}

// SetFreeMemory makes runs see n bytes of free memory.
func SetFreeMemory(t testing.TB, bytes int64) {
	old := device.HostFreeBytes
	t.Cleanup(func() { device.HostFreeBytes = old })
	device.HostFreeBytes = func() int64 { return bytes }
}

// SetFS makes runs use another file system for their output folder.
func SetFS(t testing.TB, through func(checkpoint.FS) checkpoint.FS) {
	old := rundir.View
	t.Cleanup(func() { rundir.View = old })
	rundir.View = through
}
