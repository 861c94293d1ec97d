package device_test

import (
	"testing"

	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestPeakFLOPS: any CPU does a million operations a second, in either type.
func TestPeakFLOPS(t *testing.T) {
	for _, dtype := range []tensorops.DType{tensorops.Float32, tensorops.BFloat16} {
		for _, kernels := range []string{"", "go"} {
			n, err := device.PeakFLOPS(device.Options{Threads: 1, Kernels: kernels}, dtype)
			if err != nil || n < 1e6 {
				t.Errorf("%v with kernels %q: %g operations a second, %v", dtype, kernels, n, err)
			}
			t.Logf("%v with kernels %q: %.1f GFLOPS", dtype, kernels, n/1e9)
		}
	}
	if _, err := device.PeakFLOPS(device.Options{Kernels: "none"}, tensorops.Float32); err == nil {
		t.Error("with kernels that there are not")
	}
}
