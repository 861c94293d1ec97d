//go:build unix

package hostmem

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a huge page on the systems that have them. A large
// piece begins at a multiple of it, or the system could not use them.
const hugePage = 2 << 20

func mapped(bytes int) (*Piece, error) {
	size, align := bytes, 0
	if bytes >= hugePage {
		size, align = bytes+hugePage, hugePage // pages that nobody touches take no memory
	}
	all, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	mem := all[:bytes:bytes]
	if align > 0 {
		skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(all)))) & (align - 1)
		mem = all[skip:][:bytes:bytes]
		adviseHuge(mem[:bytes&^(hugePage-1)]) // what is beyond would take a whole page for a part
	}
	p := &Piece{Bytes: mem}
	cleanup := runtime.AddCleanup(p, func(all []byte) { _ = unix.Munmap(all) }, all)
	p.free = func() error {
		cleanup.Stop()
		if err := unix.Munmap(all); err != nil {
			return fmt.Errorf("unmap %d bytes: %w", size, err)
		}
		return nil
	}
	return p, nil
}
