package lane

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// hugePage is the size of the larger pages that processors have. What is copied and read through them waits less for the
	// tables of pages, which takes longest in a virtual machine.
	hugePage = 2 << 20
	// hugeAfter is how much is copied to a huge page's place before it is made one: a stream with little to send keeps to the
	// small pages that it has written.
	hugeAfter = 8 << 20
)

// mapShared maps a shared file at a multiple of hugePage, else its pages could not be huge. The first slice it returns is all that
// is to be unmapped, the second the file.
func mapShared(fd, bytes int) (all, file []byte, err error) {
	// The system finds room for more, of which the file takes its part.
	if all, err = unix.Mmap(-1, 0, bytes+hugePage, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		return nil, nil, fmt.Errorf("finding room for %d bytes of shared memory: %w", bytes, err)
	}
	start := unsafe.Pointer(unsafe.SliceData(all))
	start = unsafe.Add(start, -uintptr(start)%hugePage)
	at, err := unix.MmapPtr(fd, 0, start, uintptr(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		_ = unix.Munmap(all)
		return nil, nil, fmt.Errorf("mapping %d bytes of shared memory: %w", bytes, err)
	}
	return all, unsafe.Slice((*byte)(at), bytes), nil
}

// collapse makes the pages around a slot a huge one, once much has been copied there. The receiver's mapping follows.
// Where the system has none for shared files, or none to spare, they stay as they are.
func (r *region) collapse(slot, bytes int) {
	page := slot * LimitPiece / hugePage
	if r.used[page] >= hugeAfter {
		return
	}
	if r.used[page] += bytes; r.used[page] >= hugeAfter {
		_ = unix.Madvise(r.memory[page*hugePage:][:hugePage], unix.MADV_COLLAPSE)
	}
}
