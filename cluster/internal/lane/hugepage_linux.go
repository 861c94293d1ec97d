package lane

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// hugePage is the size of a huge page. Copies through huge pages wait less for page tables, which are slowest in a
	// virtual machine.
	hugePage = 2 << 20
	// hugeAfter is how many bytes are copied to the place of a huge page before it becomes one. A stream with little to
	// send keeps its small pages.
	hugeAfter = 8 << 20
)

// mapShared maps a shared file at a multiple of hugePage, which huge pages require. It returns the whole mapping, to be
// unmapped at the end, and the file's part of it.
func mapShared(fd, bytes int) (all, file []byte, err error) {
	// Reserve more addresses than needed; the file takes an aligned part of them.
	if all, err = unix.Mmap(-1, 0, bytes+hugePage, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		return nil, nil, fmt.Errorf("reserve addresses for %d bytes of shared memory: %w", bytes, err)
	}
	start := unsafe.Pointer(unsafe.SliceData(all))
	start = unsafe.Add(start, -uintptr(start)%hugePage)
	at, err := unix.MmapPtr(fd, 0, start, uintptr(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		_ = unix.Munmap(all)
		return nil, nil, fmt.Errorf("map %d bytes of shared memory: %w", bytes, err)
	}
	return all, unsafe.Slice((*byte)(at), bytes), nil
}

// collapse turns the pages around a slot into a huge page, once hugeAfter bytes were copied there. It applies to the
// receiver's mapping too. If the system can't do it for shared files, or has no free huge page, the pages stay small.
func (r *region) collapse(slot, bytes int) {
	page := slot * LimitPiece / hugePage
	if r.used[page] >= hugeAfter {
		return
	}
	if r.used[page] += bytes; r.used[page] >= hugeAfter {
		_ = unix.Madvise(r.memory[page*hugePage:][:hugePage], unix.MADV_COLLAPSE)
	}
}
