//go:build unix

package hostmem

import (
	"os"

	"golang.org/x/sys/unix"
)

// MapFile returns the first bytes of a file, mapped to be read. They outlive the open file.
func MapFile(f *os.File, size int) ([]byte, error) {
	content, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	return content, os.NewSyscallError("mmap", err)
}

// UnmapFile releases a mapping of MapFile.
func UnmapFile(content []byte) error { return os.NewSyscallError("munmap", unix.Munmap(content)) }
