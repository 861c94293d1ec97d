package cli

import (
	"slices"
	"testing"
)

// TestDoctorProducts: what computes products is said where there is a GPU.
func TestDoctorProducts(t *testing.T) {
	one := []cudaDevice{{Name: "a GPU"}}
	for _, test := range []struct {
		d    cudaDiagnosis
		want []string
	}{
		{cudaDiagnosis{BLAS: "libcublasLt.so.12 (cuBLASLt 12.9)"}, nil},
		{cudaDiagnosis{Devices: one, BLAS: "libcublasLt.so.12 (cuBLASLt 12.9)"}, []string{"products: cuBLASLt's, libcublasLt.so.12 (cuBLASLt 12.9)"}},
		{cudaDiagnosis{Devices: one, Lacks: []string{"no cuBLASLt where it should be"}}, nil},
		{cudaDiagnosis{Devices: one, NoBLAS: "not found; looked for\n  here"}, []string{"products: engine's own kernels, bfloat16 on tensor cores", "not found; looked for", "  here"}},
	} {
		if got := test.d.products(); !slices.Equal(got, test.want) {
			t.Errorf("%+v: %q, want %q", test.d, got, test.want)
		}
	}
}
