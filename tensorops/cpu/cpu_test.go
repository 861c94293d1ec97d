package cpu_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
	"github.com/troupe-ml/troupe/tensorops/optest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, threads int, path string) tensorops.Device {
	t.Helper()
	d, err := cpu.New(cpu.Options{Threads: threads, Kernels: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// paths are those that this machine has; under the race detector the best alone, since
// races don't depend on the kernels.
func paths() []string {
	if raceDetector {
		return cpu.Paths()[:1]
	}
	return cpu.Paths()
}

// Every kernel path this machine has, against the float64 oracle. Under the race detector
// only what is promised of errors and streams: TestDeterministic runs every case there, on
// several threads and beside others, and the oracle would take most of the time.
func TestOps(t *testing.T) {
	oracle := new(optest.Oracle)
	for _, path := range paths() {
		t.Run(path, func(t *testing.T) {
			optest.Run(t, open(t, 2, path), optest.Options{Oracle: oracle, Skip: func(optest.Case) bool { return raceDetector }})
		})
	}
}

// The number of threads and what else runs change no bit.
func TestDeterministic(t *testing.T) {
	for _, path := range paths() {
		t.Run(path, func(t *testing.T) {
			optest.Deterministic(t, func(threads int) tensorops.Device { return open(t, threads, path) }, optest.Options{})
		})
	}
}
