//go:build unix

package data

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFile returns the first size bytes of a file, mapped, and what unmaps them.
func mapFile(f *os.File, size int) ([]byte, func() error, error) {
	bytes, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	return bytes, func() error { return os.NewSyscallError("munmap", unix.Munmap(bytes)) }, nil
}
