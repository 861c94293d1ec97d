//go:build linux && (amd64 || arm64) && !nocuda

package count_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-ml/troupe/internal/optest"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/count"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/standin"
	"github.com/troupe-ml/troupe/tensorops/cuda/kernels"
)

// long is for what takes long: make check-cuda.
var long = os.Getenv("TROUPE_LONG_TESTS") != ""

// folder is where the stand-in is built.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "troupe-count"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

var build = sync.OnceValues(func() (string, error) {
	return standin.BuildWatching(context.Background(), folder, kernels.Files)
})

// stand is the stand-in, as new, with its path.
func stand(t *testing.T) (*standin.Library, string) {
	t.Helper()
	if raceDetector || !long {
		t.Skip("it takes long, and the calls that watch kernels are the race detector's; make count-cuda runs it")
	}
	path, err := build()
	if errors.Is(err, standin.ErrCompiler) {
		t.Skipf("%v: without one nothing is counted", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := standin.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Reset()
	return l, path
}

// TestTable holds the table of kernels to what they load and store when they are emulated: in each launch of the table of
// operations, with products by the kernels here and by cuBLASLt.
func TestTable(t *testing.T) {
	l, path := stand(t)
	checked, numbers := make(map[string]int), make(map[uint64]bool)
	for _, blas := range []string{cuda.NoBLAS, path} {
		l.LogBegin()
		dev, err := cuda.New(cuda.Options{Driver: path, NVRTC: path, BLAS: blas, Cache: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		optest.RunCases(t, dev, optest.Options{Skip: func(c optest.Case) bool { return skipped(c, blas != cuda.NoBLAS) }})
		dev.Close()
		log := count.Log{Name: l.Kernel}
		if err := log.Read(l.Log(), func(e *count.Event) error {
			if e.What != count.Kernel || numbers[e.Number] {
				return nil // what comes again is a graph's, and what it touches is that of the first time
			}
			numbers[e.Number] = true
			c, err := count.Of(e)
			if err == nil {
				loaded, stored := l.Touched(e.Number)
				err = count.Compare(&c, runs(loaded), runs(stored))
			}
			if err != nil {
				t.Errorf("kernel %s, launch %d: %v", e.Name, e.Number, err)
			}
			checked[e.Name]++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	launched := 0
	for _, name := range slices.Sorted(maps.Keys(checked)) {
		launched += checked[name]
	}
	t.Logf("%d launches of %d kernels", launched, len(checked))
	for _, name := range count.Kernels() {
		if checked[name]+checked[name+"_mixed"] == 0 {
			t.Errorf("%s is in the table, and was not launched", name)
		}
	}
}

func runs(of []standin.Run) []count.Run {
	to := make([]count.Run, len(of))
	for i, r := range of {
		to[i] = count.Run(r)
	}
	return to
}

// skipped leaves out cases of what the device does not know, those that take the emulation longest, and with
// cuBLASLt all but products.
func skipped(c optest.Case, blas bool) bool {
	mixed := strings.HasSuffix(c.Name, "/mixed")
	switch c.Kind {
	case tensorops.KindCall, tensorops.KindNarrowState, tensorops.KindWidenState, tensorops.KindDistill:
		return true
	case tensorops.KindCrossEntropy, tensorops.KindCrossEntropyJoin:
		return blas || strings.Contains(c.Name, "/row factors") // refused
	case tensorops.KindMatMul, tensorops.KindPack:
		return mixed || !blas && c.Kind == tensorops.KindPack
	case tensorops.KindAttentionSink:
		return blas || strings.Contains(c.Name, "infinities") // a sink of −∞ touches nothing, which the table does not know
	case tensorops.KindAttention, tensorops.KindAttentionGrad:
		return blas || mixed && !strings.Contains(c.Name, "views")
	}
	return blas
}
