//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/optest"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
	"github.com/troupe-ml/troupe/tensorops/cuda/kernels"
)

// TestPTX: a device that is opened without NVRTC computes, by kernels of every file that
// the driver is given as they come with the build.
func TestPTX(t *testing.T) {
	l, path := stand(t)
	compiled := l.Calls("nvrtcCompileProgram")
	d, err := New(Options{Driver: path, NVRTC: NoNVRTC})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	if d.Path() != "cuda-compute_80" {
		t.Errorf("the path is %s", d.Path())
	}
	var names []string
	optest.Run(t, d, optest.Options{Skip: func(c optest.Case) bool {
		family, _, _ := strings.Cut(c.Name, "/")
		if strings.HasSuffix(c.Name, "/bfloat16") {
			family += " of bfloat16"
		}
		again := slices.Contains(names, family) || slices.Contains(refused, c.Kind) || isMixed(c) // one case of each form of a kind is enough
		names = append(names, family)
		return again
	}})
	for _, f := range d.modules.files {
		if err := d.owner.call(func() error { return d.modules.load(f) }); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
	if n := l.Calls("nvrtcCompileProgram") - compiled; n != 0 {
		t.Errorf("%d files were compiled", n)
	}
}

// TestPTXIsFallback: it is taken where NVRTC is in no usual place, and not in place of one
// that is asked for by its path.
func TestPTXIsFallback(t *testing.T) {
	_, path := stand(t)
	if _, err := driver.OpenCompiler(driver.Libraries{}, 12); err == nil {
		t.Skip("this machine has NVRTC")
	}
	d, err := New(Options{Driver: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	if !strings.HasSuffix(d.Path(), kernels.PTXTarget) {
		t.Errorf("the path is %s", d.Path())
	}
	s := d.NewStream("ptx")
	list := s.NewList()
	x := list.Alloc(tensorops.Float32, 4)
	list.Fill(x, 3)
	if err := tensorops.Run(s, list); err != nil {
		t.Fatal(err)
	}
	if got, err := fetched(s, x); err != nil || got[3] != 3 {
		t.Errorf("filled with 3: %v, %v", got, err)
	}
	if is := Describe(Options{Driver: path}); !is.PTX || len(is.Lacks) > 0 {
		t.Errorf("%+v", is)
	}
}

// TestTakesPTX: a device or a driver that is too old for the PTX is refused with what it
// takes.
func TestTakesPTX(t *testing.T) {
	for _, test := range []struct {
		major, minor, cuda int
		want               string
	}{
		{7, 5, 12, "compute capability 7.5, but the kernels in this build need 8.0"},
		{9, 0, 11, "CUDA 11.4, but the kernels in this build need 12.0"},
		{8, 0, 12, ""},
		{8, 9, 13, ""},
		{12, 0, 12, ""},
	} {
		err := takesPTX(&driver.Device{Name: "GPU", Major: test.major, Minor: test.minor}, test.cuda, 4)
		if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%d.%d with CUDA %d: %v", test.major, test.minor, test.cuda, err)
		}
	}
}
