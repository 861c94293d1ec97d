//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"os"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// architectures are those that the kernels are compiled for here: A100, H100, B200.
var architectures = []string{"sm_80", "sm_90", "sm_100"}

// TestKernelsCompile compiles every kernel with the NVRTC that TROUPE_NVRTC names: that
// takes no GPU. `make cuda-check` fetches one and runs this.
func TestKernelsCompile(t *testing.T) {
	path := os.Getenv("TROUPE_NVRTC")
	if path == "" {
		t.Skip("TROUPE_NVRTC does not name an NVRTC library; `make cuda-check` fetches one")
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
			image, err := c.Compile(file, headers, arch, compileOptions...)
			if err != nil {
				t.Error(err)
				continue
			}
			t.Logf("NVRTC %d.%d: %-18s %-6s %7d bytes", major, minor, file.Name, arch, len(image))
		}
	}
}
