//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/internal/optest"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/standin"
	"github.com/troupe-ml/troupe/tensorops/cuda/kernels"
)

// folder is where the stand-in is built.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "troupe-cuda"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(folder)
		os.Exit(code)
	}))
}

var build = sync.OnceValues(func() (string, error) {
	return standin.Build(context.Background(), folder, kernels.Files)
})

// stand is the stand-in for a GPU, as new. The test fails if it leaves anything on it.
func stand(t *testing.T) (*standin.Library, string) {
	t.Helper()
	path, err := build()
	if errors.Is(err, standin.ErrCompiler) {
		t.Skipf("%v: without one the device is not tested on a machine without a GPU", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := standin.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Reset()
	t.Cleanup(func() {
		for _, kind := range standin.Kinds {
			if n := l.Left(kind); n != 0 {
				t.Errorf("%d %s were not given back", n, kind)
			}
		}
	})
	return l, path
}

// newDevice opens the stand-in, without cuBLASLt if its path is not given. It is closed
// before what it leaves is counted.
func newDevice(t *testing.T, path string, o Options) *Device {
	t.Helper()
	o.Driver, o.NVRTC = path, path
	if o.BLAS == "" {
		o.BLAS = driver.None
	}
	if o.Cache == "" {
		o.Cache = t.TempDir()
	}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// refused are the operations that this device does not know.
var refused = []tensorops.Kind{tensorops.KindCall, tensorops.KindNarrowState, tensorops.KindWidenState, tensorops.KindDistill}

// TestRowFactors: a loss whose rows have factors of their own is refused, never computed without them.
func TestRowFactors(t *testing.T) {
	_, path := stand(t)
	s := newDevice(t, path, Options{}).NewStream("rows")
	defer s.Close()
	l := s.NewList()
	logits := l.Alloc(tensorops.Float32, 2, 3)
	o := tensorops.CrossEntropyOpts{Grad: logits, Scale: 1, RowScale: l.Alloc(tensorops.Float64, 2, 1)}
	stats, lse := l.Alloc(tensorops.Float64, tensorops.LossStats), l.Alloc(tensorops.Float64, 2, 1)
	l.CrossEntropy(stats, lse, logits, l.Alloc(tensorops.Int32, 2, 1), o)
	if err := tensorops.Run(s, l); !errors.Is(err, tensorops.ErrUnsupported) {
		t.Errorf("the error is %v", err)
	}
}

// TestKindsKnown lists the operations that have no launcher.
func TestKindsKnown(t *testing.T) {
	here := []tensorops.Kind{tensorops.KindUpload, tensorops.KindFetch, tensorops.KindPeerCopy, tensorops.KindCollective}
	for _, k := range tensorops.Kinds() {
		if launchers[k] == nil && joiners[k] == nil && !slices.Contains(here, k) && !slices.Contains(refused, k) {
			t.Errorf("%v has no launcher", k)
		}
	}
}

// TestOps runs the one table of cases, and what is promised of errors and streams. Under
// the race detector one case of each operation will do: the others differ in numbers.
func TestOps(t *testing.T) {
	_, path := stand(t)
	seen, mixed := make(map[tensorops.Kind]bool), make(map[tensorops.Kind]int)
	optest.Run(t, newDevice(t, path, Options{}), optest.Options{Skip: func(c optest.Case) bool {
		again := seen[c.Kind]
		seen[c.Kind] = true
		if isMixed(c) && !long { // make check-cuda runs all of them; in bfloat16 and in float32 each case is here
			if mixed[c.Kind]++; mixed[c.Kind] > 3 {
				return true
			}
		}
		return slices.Contains(refused, c.Kind) || tooSlow(c) || isFused(c) || raceDetector && again // TestFusedOps has those
	}})
}

// long is for what takes long: make check-cuda.
var long = os.Getenv("TROUPE_LONG_TESTS") != ""

// skipNumbers leaves out what is about the kernels' numbers but where they are checked: the goroutines are
// those of TestOps.
func skipNumbers(t *testing.T) {
	if t.Helper(); raceDetector || !long {
		t.Skip("it is about numbers, and takes long; make check-cuda runs it")
	}
}

// TestDeterministic: the same bits whatever the device has of multiprocessors, run after
// run, and beside another stream.
func TestDeterministic(t *testing.T) {
	skipNumbers(t) // of five times the cases
	_, path := stand(t)
	optest.Deterministic(t, func(processors int) tensorops.Device {
		d, err := New(Options{Driver: path, NVRTC: path, Cache: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		d.gpu.Processors = processors // before there is a stream
		return d
	}, optest.Options{Skip: func(c optest.Case) bool {
		if isMixed(c) || isAttention(c) && strings.HasSuffix(c.Name, "/bfloat16") && !strings.Contains(c.Name, "views") {
			return true
		}
		// Of the products, those that are cut in pieces of the depth: the emulation is slow.
		return slices.Contains(refused, c.Kind) || ofRowFactors(c) || c.Kind == tensorops.KindPack || c.Kind == tensorops.KindMatMul &&
			!slices.Contains([]string{"matmul/NN/split", "matmul/TN/split", "matmul/NT/bf16 split"}, c.Name)
	}})
}

// TestLate runs what is promised of errors and streams on a device that is slow at
// random, where what should have been waited for is not there yet.
func TestLate(t *testing.T) {
	l, path := stand(t)
	l.Delay(2000)
	optest.Run(t, newDevice(t, path, Options{}), optest.Options{Skip: func(optest.Case) bool { return true }})
}

// tooSlow leaves out products of packed matrices that take the stand-in seconds. Without
// cuBLASLt nothing is packed, so they are the products of cases that stay.
func tooSlow(c optest.Case) bool {
	switch {
	case strings.HasPrefix(c.Name, "pack/"):
		return isMixed(c) || !strings.HasPrefix(c.Name, "pack/NN/") && !strings.HasSuffix(c.Name, "/sizes")
	case c.Kind == tensorops.KindMatMul:
		return isMixed(c) && !strings.HasPrefix(c.Name, "matmul/NN/") && !strings.HasSuffix(c.Name, "/bf16 variants/mixed")
	}
	return ofRowFactors(c)
}

// ofRowFactors reports whether a case is of something that is refused and that TestRowFactors checks.
func ofRowFactors(c optest.Case) bool { return strings.Contains(c.Name, "/row factors") }

// isFused reports whether a case is of a product with a GELU behind.
func isFused(c optest.Case) bool { return strings.Contains(c.Name, "then gelu") }

// fewFused leaves out of the fused ones, but where numbers are checked, what others have much alike.
func fewFused(c optest.Case) bool {
	return isFused(c) && (long || !isMixed(c) && !strings.HasSuffix(c.Name, "/bfloat16") && !strings.Contains(c.Name, "NN packed"))
}

// isMixed reports whether a case has operands of float32 and bfloat16 by turns.
func isMixed(c optest.Case) bool { return strings.HasSuffix(c.Name, "/mixed") }

func isAttention(c optest.Case) bool {
	return c.Kind == tensorops.KindAttention || c.Kind == tensorops.KindAttentionGrad
}

func TestDescribe(t *testing.T) {
	_, path := stand(t)
	is := Describe(Options{Driver: path, NVRTC: path, BLAS: path})
	if len(is.Lacks) > 0 || is.BLAS == nil || is.BLAS.String() != path+" (cuBLASLt 12.4)" || len(is.Devices) != 1 ||
		is.Devices[0].Name != "stand-in" || is.Driver == nil || is.NVRTC == nil {
		t.Fatalf("%+v", is)
	}
	if got := is.NVRTC.String(); !strings.HasSuffix(got, "(CUDA 12.4)") {
		t.Errorf("NVRTC is %s", got)
	}
}
