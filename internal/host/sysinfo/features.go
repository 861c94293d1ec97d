package sysinfo

// Feature is an ability of the processor that kernels may use.
type Feature struct {
	Name string `json:"name"`
	Has  bool   `json:"has"`
}
