package hostmem

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages. That they are switched off is no error.
func adviseHuge(mem []byte) { _ = unix.Madvise(mem, unix.MADV_HUGEPAGE) }

// populate asks for all pages at once, which costs less than a fault for each. A system that knows no such request gives them later.
func populate(mem []byte) { _ = unix.Madvise(mem, unix.MADV_POPULATE_WRITE) }
