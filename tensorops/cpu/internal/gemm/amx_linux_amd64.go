package gemm

import (
	"sync"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

// HasAMX reports whether the processor has AMX for bfloat16 and AVX-512's conversion to
// it, and the system lets this process use them; it asks the system, once.
var HasAMX = sync.OnceValue(func() bool {
	if !cpu.X86.HasAMXTile || !cpu.X86.HasAMXBF16 || !cpu.X86.HasAVX512BF16 {
		return false
	}
	const (
		archReqXcompPerm = 0x1023 // of arch_prctl, since Linux 5.16
		tileData         = 18     // the state component of tile registers
	)
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archReqXcompPerm, tileData, 0)
	return errno == 0
})
