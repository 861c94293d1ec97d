//go:build unix

package hostmem

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MapFile returns the first bytes of a file, mapped to be read. They outlive the open file.
func MapFile(f *os.File, size int) ([]byte, error) {
	content, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	return content, os.NewSyscallError("mmap", err)
}

// UnmapFile releases a mapping of MapFile.
func UnmapFile(content []byte) error { return os.NewSyscallError("munmap", unix.Munmap(content)) }

// Forget frees the memory of a part of a mapping of MapFile, which was read. The part stays valid: it is read from the file again.
func Forget(part []byte) {
	if len(part) == 0 {
		return
	}
	page := uintptr(os.Getpagesize())
	first := uintptr(unsafe.Pointer(unsafe.SliceData(part)))
	skip := (page - first%page) % page // the pages at both ends may be those of other parts, too
	if uintptr(len(part)) < skip+page {
		return
	}
	n := (uintptr(len(part)) - skip) / page * page
	_ = unix.Madvise(part[skip:skip+n], unix.MADV_DONTNEED) // only advice
}
