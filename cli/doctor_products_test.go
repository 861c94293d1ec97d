package cli

import (
	"slices"
	"testing"
)

// TestDoctorProducts: with a GPU, doctor names the library of matrix products.
func TestDoctorProducts(t *testing.T) {
	one := []cudaDevice{{Name: "a GPU"}}
	for _, test := range []struct {
		d    cudaDiagnosis
		want []string
	}{
		{cudaDiagnosis{BLAS: "libcublasLt.so.12 (cuBLASLt 12.9)"}, nil},
		{cudaDiagnosis{Devices: one, BLAS: "libcublasLt.so.12 (cuBLASLt 12.9)"},
			[]string{"matrix products: cuBLASLt, libcublasLt.so.12 (cuBLASLt 12.9)"}},
		{cudaDiagnosis{Devices: one, Lacks: []string{"no cuBLASLt where it should be"}}, nil},
		{cudaDiagnosis{Devices: one, NoBLAS: "not found; looked for\n  here"},
			[]string{"matrix products: engine's own kernels, bfloat16 on tensor cores", "not found; looked for", "  here"}},
	} {
		if got := test.d.products(); !slices.Equal(got, test.want) {
			t.Errorf("%+v: %q, want %q", test.d, got, test.want)
		}
	}
}

// TestDoctorPeers: with several GPUs, doctor says which can copy from each other directly.
func TestDoctorPeers(t *testing.T) {
	gpu := func(peers ...int) cudaDevice { return cudaDevice{"H100", "9.0", 80 << 30, peers} }
	for _, c := range []struct {
		devices []cudaDevice
		want    []string
	}{
		{[]cudaDevice{gpu()}, []string{"device 0 (cuda:0): H100, compute capability 9.0, 80.0 GiB"}},
		{[]cudaDevice{gpu(1), gpu(0), gpu()}, []string{
			"device 0 (cuda:0): H100, compute capability 9.0, 80.0 GiB, copies directly from devices [1]",
			"device 1 (cuda:1): H100, compute capability 9.0, 80.0 GiB, copies directly from devices [0]",
			"device 2 (cuda:2): H100, compute capability 9.0, 80.0 GiB, copies from other devices through the host",
		}},
	} {
		if got := (cudaDiagnosis{Devices: c.devices}).lines(); !slices.Equal(got[:min(len(got), len(c.want))], c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
