package driver

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"
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
	make(toolkit, "lib64", "libcublasLt.so.11")
	wheel12 := make(env, "lib", "python3.12", "site-packages", "nvidia", "cublas", "lib", "libcublasLt.so.12")
	wheel13 := make(env, "lib", "python3.12", "site-packages", "nvidia", "cu13", "lib", "libcublasLt.so.13")
	for driver, order := range map[int][]string{
		12: {"libcublasLt.so.12", wheel12, "libcublasLt.so.11", "libcublasLt.so.13", wheel13, "libcublasLt.so"},
		13: {"libcublasLt.so.13", wheel13, "libcublasLt.so.12", wheel12, "libcublasLt.so.11", "libcublasLt.so"},
	} {
		got := Libraries{}.blasCandidates(driver)
		got = slices.DeleteFunc(got, func(p string) bool { return !slices.Contains(order, p) })
		if !slices.Equal(got, order) {
			t.Errorf("cuBLASLt for a driver of CUDA %d: %q", driver, got)
		}
	}
	if got := (Libraries{BLAS: "here"}).blasCandidates(12); !slices.Equal(got, []string{"here"}) {
		t.Errorf("a path of cuBLASLt's that is given: %q", got)
	}
	if got := (Libraries{NVRTC: "here"}).nvrtcCandidates(12); !slices.Equal(got, []string{"here"}) {
		t.Errorf("a path that is given: %q", got)
	}
}

// TestSearchPython: the packages of a Python are found wherever it is: in the environment that
// is active, in one whose python3 is in PATH, through the link that such a python3 is, in
// Conda's and in the system's folder.
func TestSearchPython(t *testing.T) {
	const library = "libcublasLt.so.12"
	for _, test := range []struct {
		name string
		set  func(t *testing.T, prefix string)
		in   string // below the prefix
	}{
		{"an active environment", func(t *testing.T, prefix string) { t.Setenv("VIRTUAL_ENV", prefix) },
			"lib/python3.12/site-packages/nvidia/cublas/lib"},
		{"Conda's active environment", func(t *testing.T, prefix string) { t.Setenv("CONDA_PREFIX", prefix) }, "lib"},
		{"python3 in PATH", func(t *testing.T, prefix string) {
			t.Setenv("PATH", program(t, filepath.Join(prefix, "bin", "python3")))
		}, "lib/python3.11/site-packages/nvidia/cu13/lib"},
		{"only python in PATH", func(t *testing.T, prefix string) {
			t.Setenv("PATH", program(t, filepath.Join(prefix, "bin", "python")))
		}, "lib64/python3.11/site-packages/nvidia/cublas/lib"},
		{"behind a link to python3", func(t *testing.T, prefix string) {
			bin := filepath.Join(t.TempDir(), "bin")
			if err := errors.Join(os.Mkdir(bin, 0o700), os.Symlink(filepath.Join(program(t, filepath.Join(prefix, "bin", "python3")), "python3"),
				filepath.Join(bin, "python3"))); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", bin)
		}, "lib/python3.12/dist-packages/nvidia/cublas/lib"},
		{"Conda without a word", func(_ *testing.T, prefix string) { condaPrefix = prefix }, "lib"},
		{"packages of Conda's", func(_ *testing.T, prefix string) { condaPrefix = prefix }, "lib/python3.12/site-packages/nvidia/cublas/lib"},
		{"Conda's toolkit", func(_ *testing.T, prefix string) { condaPrefix = prefix }, "targets/x86_64-linux/lib"},
		{"the system's", func(_ *testing.T, prefix string) { systemPrefixes = []string{prefix} }, "lib/python3/dist-packages/nvidia/cublas/lib"},
		{"the user's", func(t *testing.T, prefix string) { t.Setenv("HOME", prefix) }, ".local/lib/python3.12/site-packages/nvidia/cublas/lib"},
	} {
		t.Run(test.name, func(t *testing.T) {
			empty := t.TempDir()
			for _, variable := range []string{"VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH"} {
				t.Setenv(variable, "")
			}
			t.Setenv("PATH", empty)
			t.Setenv("HOME", empty)
			system, conda := systemPrefixes, condaPrefix
			defer func() { systemPrefixes, condaPrefix = system, conda }()
			systemPrefixes, condaPrefix = nil, empty

			prefix := t.TempDir()
			path := filepath.Join(prefix, filepath.FromSlash(test.in), library)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			if got := (Libraries{}).blasCandidates(12); slices.Contains(got, path) {
				t.Fatalf("%s is found before anything names it: %q", path, got)
			}
			test.set(t, prefix)
			if got := (Libraries{}).blasCandidates(12); !slices.Contains(got, path) {
				t.Errorf("%s is not among %q", path, got)
			}
			if says := nowhere("a-package"); !strings.Contains(says, prefix) {
				t.Errorf("%q does not say that %s was looked through", says, prefix)
			}
		})
	}
}

// program makes a file that can be executed, and returns its folder.
func program(t *testing.T, path string) (folder string) {
	t.Helper()
	folder = filepath.Dir(path)
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(path, nil, 0o700)); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestNothingThere: an error lists what was looked for, on every system.
func TestNothingThere(t *testing.T) {
	for name, open := range map[string]func(Libraries) error{
		"driver":   func(l Libraries) error { _, err := Open(l); return err },
		"compiler": func(l Libraries) error { _, err := OpenCompiler(l, 12); return err },
		"products": func(l Libraries) error { _, err := OpenBLAS(l, 12); return err },
	} {
		err := open(Libraries{Driver: "/nowhere/a.so", NVRTC: "/nowhere/a.so", BLAS: "/nowhere/a.so"})
		if !errors.Is(err, ErrUnavailable) || unavailable == "" && !strings.Contains(err.Error(), "/nowhere/a.so") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for blas, lacks := range map[string]int{None: 1, "/nowhere/a.so": 2} {
		is := Describe(Libraries{Driver: "/nowhere/a.so", NVRTC: "/nowhere/a.so", BLAS: blas})
		if len(is.Lacks) != lacks || is.Driver != nil || is.NVRTC != nil || is.NoNVRTC == nil || is.BLAS != nil ||
			(is.NoBLAS == nil) != (lacks == 2) {
			t.Errorf("%+v", is)
		}
	}
}

// TestBLASLayout: the sizes of what cuBLASLt reads and writes are those of its header.
func TestBLASLayout(t *testing.T) {
	var r heuristicResult
	if size := unsafe.Sizeof(r); size != 96 {
		t.Errorf("a result has %d bytes, cublasLtMatmulHeuristicResult_t has 96", size)
	}
	for field, at := range map[string][2]uintptr{
		"workspaceSize": {unsafe.Offsetof(r.workspaceBytes), 64},
		"state":         {unsafe.Offsetof(r.state), 72},
		"wavesCount":    {unsafe.Offsetof(r.waves), 76},
		"reserved":      {unsafe.Offsetof(r.reserved), 80},
	} {
		if at[0] != at[1] {
			t.Errorf("%s is at byte %d, want %d", field, at[0], at[1])
		}
	}
}

// TestRealBLAS tells the cuBLASLt that TROUPE_LIBCUBLASLT names of products, which takes no
// GPU: it must know every attribute, at the size at which it is given.
func TestRealBLAS(t *testing.T) {
	path := os.Getenv("TROUPE_LIBCUBLASLT")
	if path == "" || path == None || unavailable != "" {
		t.Skip("TROUPE_LIBCUBLASLT does not name a library that can be opened; `pip download nvidia-cublas-cu12` fetches one")
	}
	b, err := OpenBLAS(Libraries{BLAS: path}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []Matmul{
		{M: 24, N: 10, K: 16, LDA: 24, LDB: 16, LDD: 24, AlignA: 16, AlignB: 4, AlignD: 16, Epilogue: NoEpilogue},
		{M: 24, N: 10, K: 16, LDA: 16, LDB: 16, LDD: 32, AlignA: 16, AlignB: 8, AlignD: 4, Epilogue: Bias, AlignBias: 4, Precision: TF32,
			TransA: true},
		{M: 24, N: 10, K: 16, LDA: 24, LDB: 16, LDD: 24, AlignA: 16, AlignB: 2, AlignD: 16, Epilogue: GELUAuxBias, LDAux: 24, AlignBias: 16,
			AlignAux: 16, Precision: BFloat16},
	} {
		p := &MatmulPlan{blas: b}
		var preference uintptr
		err := errors.Join(p.describe(&m), b.do(cublasLtMatmulPreferenceCreate, uintptr(unsafe.Pointer(&preference))),
			b.prefer(preference, &m, 1<<20))
		if err != nil {
			t.Errorf("%+v: %v", m, err)
		}
		if err := b.do(cublasLtMatmulPreferenceDestroy, preference); err != nil {
			t.Error(err)
		}
		p.End()
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
