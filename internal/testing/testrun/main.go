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

// Main runs the tests of a package in the module's folder, where testdata and examples are. No goroutine may be left.
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
