//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
	"github.com/troupe-ml/troupe/tensorops/cuda/kernels"
)

// architectures are those that the kernels are compiled for here: A100, H100, B200.
var architectures = []string{"sm_80", "sm_90", "sm_100"}

// TestKernelsCompile compiles every kernel with the NVRTC that TROUPE_NVRTC names: that
// takes no GPU. `make check-cuda` fetches one and runs this. No kernel may put registers aside in
// memory, which launch bounds or the kernel have to mend, or have an array there.
func TestKernelsCompile(t *testing.T) {
	path := os.Getenv("TROUPE_NVRTC")
	if path == "" {
		t.Skip("TROUPE_NVRTC does not name an NVRTC library; `make check-cuda` fetches one")
	}
	c, err := driver.OpenCompiler(driver.Libraries{NVRTC: path}, 0)
	if err != nil {
		t.Fatal(err)
	}
	files, err := sources("*.cu")
	if err != nil || len(files) == 0 {
		t.Fatalf("no kernels to compile: %v", err)
	}
	headers, err := sources("*.cuh")
	if err != nil {
		t.Fatal(err)
	}
	major, minor := c.Version()
	for _, file := range files {
		for _, arch := range architectures {
			t.Run(file.Name+"/"+arch, func(t *testing.T) {
				image, log, err := c.CompileLogged(file, headers, arch, append(kernels.CompileOptions, "--ptxas-options=-v")...)
				if err != nil {
					t.Fatal(err)
				}
				taken, err := resourcesOf(image)
				if err != nil || len(taken) == 0 {
					t.Errorf("%d kernels, %v", len(taken), err)
				}
				said := spillsOf(log)
				for _, kernel := range slices.Sorted(maps.Keys(taken)) {
					r := taken[kernel]
					spills, ok := said[kernel]
					t.Logf("NVRTC %d.%d: %-6s %-24s %3d registers, %6d bytes shared, %3d bytes of stack, of spills %d stored and %d loaded",
						major, minor, arch, kernel, r.registers, r.shared, r.stack, spills.stored, spills.loaded)
					if r.registers == 0 || !ok || spills != (spilled{}) || r.stack > 0 {
						t.Errorf("%s for %s: %+v and %+v, found in the log: %v; want no spills", kernel, arch, r, spills, ok)
					}
				}
			})
		}
	}
}

// spilled are the bytes of a thread's registers that a kernel puts aside in memory, and takes back.
type spilled struct{ stored, loaded int }

var (
	logKernel = regexp.MustCompile(`Compiling entry function '(\w+)'`)
	logSpills = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)
)

// spillsOf reads from the assembler's log, by --ptxas-options=-v, what each kernel spills.
func spillsOf(log string) map[string]spilled {
	all := make(map[string]spilled)
	kernel := ""
	for line := range strings.Lines(log) {
		if found := logKernel.FindStringSubmatch(line); found != nil {
			kernel = found[1]
		}
		if found := logSpills.FindStringSubmatch(line); found != nil && kernel != "" {
			var s spilled
			_, _ = fmt.Sscan(found[2], &s.stored) // they are digits
			_, _ = fmt.Sscan(found[3], &s.loaded)
			all[kernel], kernel = s, ""
		}
	}
	return all
}
