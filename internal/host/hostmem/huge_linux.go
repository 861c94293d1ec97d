package hostmem

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages. That they are switched off is no error.
func adviseHuge(mem []byte) { _ = unix.Madvise(mem, unix.MADV_HUGEPAGE) }
