package sysinfo

import "golang.org/x/sys/cpu"

// Features lists what kernels of this architecture could use.
func Features() []Feature {
	return []Feature{{"NEON", cpu.ARM64.HasASIMD}, {"SVE", cpu.ARM64.HasSVE}}
}
