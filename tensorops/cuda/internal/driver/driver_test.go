package driver

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSearch: libraries in a toolkit's folder and in a Python environment are found, and
// those that the driver surely knows come first.
func TestSearch(t *testing.T) {
	env, toolkit := t.TempDir(), t.TempDir()
	t.Setenv("VIRTUAL_ENV", env)
	t.Setenv("CUDA_HOME", toolkit)
	make := func(parts ...string) string {
		t.Helper()
		path := filepath.Join(parts...)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	twelve := make(env, "lib", "python3.12", "site-packages", "nvidia", "cuda_nvrtc", "lib", "libnvrtc.so.12")
	thirteen := make(toolkit, "lib64", "libnvrtc.so.13")
	for _, test := range []struct {
		driver int
		order  []string
	}{
		{12, []string{"libnvrtc.so.12", twelve, "libnvrtc.so.11.2", "libnvrtc.so.13", thirteen, "libnvrtc.so"}},
		{13, []string{"libnvrtc.so.13", thirteen, "libnvrtc.so.12", twelve, "libnvrtc.so.11.2", "libnvrtc.so"}},
	} {
		got := Libraries{}.nvrtcCandidates(test.driver)
		got = slices.DeleteFunc(got, func(p string) bool { return !slices.Contains(test.order, p) }) // what the machine has
		if !slices.Equal(got, test.order) {
			t.Errorf("for a driver of CUDA %d: %q", test.driver, got)
		}
	}
	if got := (Libraries{NVRTC: "here"}).nvrtcCandidates(12); !slices.Equal(got, []string{"here"}) {
		t.Errorf("a path that is given: %q", got)
	}
}

// TestNothingThere: an error lists what was looked for, on every system.
func TestNothingThere(t *testing.T) {
	for name, open := range map[string]func(Libraries) error{
		"driver":   func(l Libraries) error { _, err := Open(l); return err },
		"compiler": func(l Libraries) error { _, err := OpenCompiler(l, 12); return err },
	} {
		err := open(Libraries{Driver: "/nowhere/a.so", NVRTC: "/nowhere/a.so"})
		if !errors.Is(err, ErrUnavailable) || unavailable == "" && !strings.Contains(err.Error(), "/nowhere/a.so") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if is := Describe(Libraries{Driver: "/nowhere/a.so", NVRTC: "/nowhere/a.so"}); len(is.Lacks) != 1 || is.NoNVRTC == nil || is.Driver != nil || is.NVRTC != nil {
		t.Errorf("%+v", is)
	}
}

func TestTarget(t *testing.T) {
	c := &Compiler{library: &library{path: "libnvrtc.so"}, archs: []int{75, 80, 90}}
	for _, test := range []struct {
		major, minor int
		want         string
	}{{9, 0, "sm_90"}, {8, 0, "sm_80"}, {8, 6, "compute_80"}, {12, 1, "compute_90"}, {7, 0, ""}} {
		got, err := c.Target(&Device{Major: test.major, Minor: test.minor})
		if got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%d.%d: %q, %v", test.major, test.minor, got, err)
		}
	}
}
