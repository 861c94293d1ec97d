package sysinfo

import "golang.org/x/sys/cpu"

// Features lists what kernels of this architecture could use. A processor's
// ability counts only where the operating system has enabled it.
func Features() []Feature {
	x := &cpu.X86
	return []Feature{
		{"AVX2", x.HasAVX2},
		{"FMA", x.HasFMA},
		{"AVX-512F", x.HasAVX512F},
		{"AVX-512BW", x.HasAVX512BW},
		{"AVX-512DQ", x.HasAVX512DQ},
		{"AVX-512VL", x.HasAVX512VL},
		{"AVX-512-BF16", x.HasAVX512BF16},
		{"AMX-TILE", x.HasAMXTile},
		{"AMX-BF16", x.HasAMXBF16},
	}
}
