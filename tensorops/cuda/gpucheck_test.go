//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checked is a folder as `make gpu-build` makes it, with programs that say what a test wants.
type checked struct{ folder string }

const (
	byBLAS = "cuda-sm_90-cublaslt-12.9"
	byOwn  = "cuda-sm_90"
	told   = `{"library_products": 40, "library_gelus": 3, "library_column_sums": 5, "kernel_products": 2, "fallen": ["1×2×3 NT bfloat16, strides 2, 3 and 3"], "graphs": 7, "failed_graphs": 0}`
)

func newChecked(t *testing.T) checked {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("..", "..", "scripts", "gpu-check"))
	if err != nil {
		t.Fatal(err)
	}
	c := checked{t.TempDir()}
	c.write(t, "scripts/gpu-check", string(script))
	c.engine(t, `"nvrtc": "a (CUDA 12.9)", "no_nvrtc": "", "cublaslt": "b (cuBLASLt 12.9)", "no_cublaslt": ""`, byBLAS)
	c.tests(t, byBLAS, "")
	c.peers(t, byBLAS, "cuBLASLt")
	return c
}

func (c checked) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(c.folder, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text),
		0o700)); err != nil {
		t.Fatal(err)
	}
}

// engine is a program that finds these libraries, and those that the environment names, and whose
// GELUs are faster apart.
func (c checked) engine(t *testing.T, libraries, kernels string) {
	t.Helper()
	c.write(t, "engine", fmt.Sprintf(`#!/bin/sh
case "$1 $2" in
"doctor --json") printf '{"cuda": {"devices": [{"name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0"}], "lacks": [], %%s}}\n' '%s' | sed "s,NAMED,$TROUPE_LIBCUBLASLT,; s,ENVIRONMENT,$VIRTUAL_ENV," ;;
"doctor ") echo a doctor ;;
*) case "$TROUPE_GELU" in fused) speed=100 way=-gelu-fused gelus=12 ;; *) speed=110 gelus=0 ;; esac
   echo "{\"tokens_per_s\": {\"median\": $speed}, \"kernels\": \"%s$way\", \"gpus\": [{\"library_gelus\": $gelus}]}" ;;
esac
`, libraries, kernels))
}

// tests is a cuda.test that computes with these kernels.
func (c checked) tests(t *testing.T, kernels, more string) {
	t.Helper()
	c.write(t, "cuda.test",
		fmt.Sprintf("#!/bin/sh\ncat <<'END'\n    train_test.go:1: kernels: %s\n    train_test.go:2: work: %s\n--- PASS: TestGPU (1.00s)\n    --- PASS: TestGPU/cases (1.00s)\n%s\nPASS\nEND\n", kernels, told, more))
}

// peers are comparisons whose products are computed by something.
func (c checked) peers(t *testing.T, kernels, by string) {
	t.Helper()
	const head = "import pathlib, sys\nout = pathlib.Path(sys.argv[sys.argv.index('--json') + 1])\n"
	c.write(t, "bench/peers/step.py", head+fmt.Sprintf("out.write_text('''%s''')\n",
		`{"kernels": "`+kernels+`", "gpus": [`+told+
			`], "gflop_per_token": 1, "tokens_per_s": {"Troupe": [2e5], "compiled": [1e5]}, "bytes": {"Troupe": 1, "compiled": 2}}`))
	c.write(t, "bench/peers/ops.py", head+fmt.Sprintf("out.write_text('''%s\n%s\n''')\n",
		`{"op": "up", "kernels": "`+kernels+`", "by": "`+by+`"}`, `{"op": "attention", "kernels": "`+kernels+
			`", "by": null, "ratio": 1, "ms": 1, "peer_ms": 1, "of_bound": 0.5, "bound": "flops"}`))
}

// run has a Python check a part, and returns what it said.
func (c checked) run(t *testing.T, python, part string) (said string, ok bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, filepath.Join(c.folder, "scripts", "gpu-check"), "--part", part)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "TROUPE_") || strings.HasPrefix(v, "VIRTUAL_ENV=") || strings.HasPrefix(v, "CONDA_")
	})
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), err == nil
}

func pythonOrSkip(t *testing.T) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3, which runs scripts/gpu-check")
	}
	return python
}

// TestGPUCheck: the check fails where products are not cuBLASLt's, and says which.
func TestGPUCheck(t *testing.T) {
	python := pythonOrSkip(t)
	for _, test := range []struct {
		name, part string
		change     func(t *testing.T, c checked)
		ok         bool
		says       []string
	}{
		{"all is there", "doctor", nil, true, []string{"ok     libcublasLt.so is found", "ok     libnvrtc.so is found", "ok     a GPU is found"}},
		{"no cuBLASLt", "doctor", func(t *testing.T, c checked) {
			c.engine(t, `"nvrtc": "a", "no_nvrtc": "", "cublaslt": "", "no_cublaslt": "not in /nowhere"`, byOwn)
		}, false, []string{"FAILED libcublasLt.so is found", "ok     libnvrtc.so is found"}},
		{"no NVRTC", "doctor", func(t *testing.T, c checked) {
			c.engine(t, `"nvrtc": "", "no_nvrtc": "not in /nowhere", "cublaslt": "b", "no_cublaslt": ""`, byBLAS)
		}, false, []string{"FAILED libnvrtc.so is found"}},
		{"the library's products", "optest", nil, true, []string{"2 of 2 pass",
			"40 by cuBLASLt, 3 of them with a GELU, 5 with column sums; 2 by own kernels; 1 forms fell back",
			"graphs that could not be made: 0 of 7"}},
		{"own products", "optest", func(t *testing.T, c checked) { c.tests(t, byOwn, "") }, false,
			[]string{"FAILED optest: products by cuBLASLt"}},
		{"the path is not told", "optest", func(t *testing.T, c checked) {
			c.write(t, "cuda.test", "#!/bin/sh\necho '--- PASS: TestGPU (0.00s)'\n")
		}, false, []string{"FAILED optest: products by cuBLASLt"}},
		{"what is skipped", "optest", func(t *testing.T, c checked) { c.tests(t, byBLAS, "    --- SKIP: TestTrains/cuBLASLt (0.00s)") }, false,
			[]string{"FAILED optest: the table of cases", "2 of 3 pass, 1 skipped"}},
		{"nothing ran", "optest", func(t *testing.T, c checked) { c.write(t, "cuda.test", "#!/bin/sh\necho PASS\n") }, false,
			[]string{"FAILED optest: the table of cases"}},
		{"steps by the library", "speed", nil, true, []string{"1 forms fell back", "2.00 (200,000 by 100,000)", "of 989 TFLOP/s"}},
		{"steps by own products", "speed", func(t *testing.T, c checked) { c.peers(t, byOwn, "own kernels") }, false,
			[]string{"FAILED steps, bfloat16: products by cuBLASLt"}},
		{"operations by the library", "ops", nil, true, []string{"products of a layer, float32: by cuBLASLt: 1 of 1"}},
		{"operations by own products", "ops", func(t *testing.T, c checked) { c.peers(t, byOwn, "own kernels") }, false,
			[]string{"FAILED operations, float32: products by cuBLASLt", "0 of 1; by own kernels: up"}},
		{"one operation by own products", "ops", func(t *testing.T, c checked) { c.peers(t, byBLAS, "own kernels") }, false,
			[]string{"FAILED operations, bfloat16: what computes products", "0 of 1; by own kernels: up"}},
		{"GELU", "gelu", nil, true, []string{"1.100; the rule for this GPU is apart, apart is faster"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newChecked(t)
			if test.change != nil {
				test.change(t, c)
			}
			said, ok := c.run(t, python, test.part)
			if ok != test.ok {
				t.Errorf("it passes: %v, want %v:\n%s", ok, test.ok, said)
			}
			for _, part := range test.says {
				if !strings.Contains(said, part) {
					t.Errorf("%q is not in:\n%s", part, said)
				}
			}
			report, err := os.ReadFile(filepath.Join(c.folder, "gpu-report.md"))
			if err != nil || !test.ok && !strings.Contains(string(report), "FAILED") {
				t.Errorf("the report, %v:\n%s", err, report)
			}
			if test.name == "no cuBLASLt" && (!strings.Contains(string(report), "not in /nowhere") ||
				!strings.Contains(string(report), "pip install nvidia-cublas-cu12")) {
				t.Errorf("the report does not say where it was looked for:\n%s", report)
			}
		})
	}
}

// TestGPUCheckPackages: the libraries are those of the Python that runs the check, which was started
// by its path and is active nowhere.
func TestGPUCheckPackages(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), pythonOrSkip(t), "-c",
		"import os, sys; print(os.path.realpath(sys.executable)); print('python%d.%d' % sys.version_info[:2])").Output()
	if err != nil {
		t.Fatal(err)
	}
	real, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	env := t.TempDir()
	python := filepath.Join(env, "bin", "python3")
	library := filepath.Join(env, "lib", version, "site-packages", "nvidia", "cublas", "lib", "libcublasLt.so.12")
	if err := errors.Join(os.MkdirAll(filepath.Dir(python), 0o700), os.MkdirAll(filepath.Dir(library), 0o700), os.Symlink(real, python),
		os.WriteFile(filepath.Join(env, "pyvenv.cfg"), []byte("home = "+filepath.Dir(real)+"\n"), 0o600),
		os.WriteFile(library, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	// An engine that finds nothing on its own is told the path; and it is told the environment.
	c := newChecked(t)
	c.engine(t, `"nvrtc": "ENVIRONMENT", "no_nvrtc": "", "cublaslt": "NAMED", "no_cublaslt": "nowhere"`, byBLAS)
	said, ok := c.run(t, python, "doctor")
	report, err := os.ReadFile(filepath.Join(c.folder, "gpu-report.md"))
	if err != nil || !ok || !strings.Contains(string(report), library) || !strings.Contains(string(report), env+"\n") {
		t.Errorf("%v, %v\n%s\n%s", ok, err, said, report)
	}
	if err := os.Remove(library); err != nil {
		t.Fatal(err)
	}
	if said, ok := c.run(t, python, "doctor"); ok || !strings.Contains(said, "FAILED libcublasLt.so is found") {
		t.Errorf("without the library: %v\n%s", ok, said)
	}
}

// TestGPUCheckPeaks: a device's peak is that of the longest name that is its.
func TestGPUCheckPeaks(t *testing.T) {
	const load = `
import importlib.machinery, importlib.util, sys
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("gpu_check", sys.argv[1])
m = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
loader.exec_module(m)
for name in sys.argv[2:]:
    print(m.peak_of(name))
`
	peaks := [][2]string{
		{"NVIDIA H200", "989"}, {"NVIDIA H200 NVL", "835"}, {"NVIDIA H100 80GB HBM3", "989"}, {"NVIDIA H100 NVL", "835"},
		{"NVIDIA H100 PCIe", "756"},
		{"NVIDIA A100-SXM4-80GB", "312"}, {"NVIDIA L40S", "362"}, {"NVIDIA L40", "None"}, {"NVIDIA GeForce RTX 4090", "165"},
		{"NVIDIA B200", "2250"},
		{"NVIDIA GB200", "None"}, {"stand-in", "None"},
	}
	args := []string{"-c", load, filepath.Join("..", "..", "scripts", "gpu-check")}
	for _, p := range peaks {
		args = append(args, p[0])
	}
	out, err := exec.CommandContext(t.Context(), pythonOrSkip(t), args...).CombinedOutput()
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(got) != len(peaks) {
		t.Fatalf("%v: %s", err, out)
	}
	for i, p := range peaks {
		if got[i] != p[1] {
			t.Errorf("%s has %s TFLOP/s, want %s", p[0], got[i], p[1])
		}
	}
}
