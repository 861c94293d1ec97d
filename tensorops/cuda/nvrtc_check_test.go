//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
	"github.com/troupe-ml/troupe/tensorops/cuda/kernels"
)

// architectures are those that the kernels are compiled for here: A100, H100, B200.
var architectures = []string{"sm_80", "sm_90", "sm_100"}

// limitStack is the most bytes that a thread may have in memory instead of in registers: a
// few that are put aside outside of the loops that count. More is for launch bounds, or for
// the kernel, to mend.
const limitStack = 40

// TestKernelsCompile compiles every kernel with the NVRTC that TROUPE_NVRTC names: that
// takes no GPU. `make check-cuda` fetches one and runs this.
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
			image, err := c.Compile(file, headers, arch, kernels.CompileOptions...)
			if err != nil {
				t.Error(err)
				continue
			}
			taken, err := resourcesOf(image)
			if err != nil || len(taken) == 0 {
				t.Errorf("%s for %s: %d kernels, %v", file.Name, arch, len(taken), err)
			}
			for _, kernel := range slices.Sorted(maps.Keys(taken)) {
				r := taken[kernel]
				t.Logf("NVRTC %d.%d: %-6s %-24s %3d registers, %6d bytes shared, %3d bytes of stack", major, minor, arch, kernel, r.registers, r.shared, r.stack)
				if r.registers == 0 || r.stack > limitStack {
					t.Errorf("%s for %s: %+v: at most %d bytes of stack", kernel, arch, r, limitStack)
				}
			}
		}
	}
}
