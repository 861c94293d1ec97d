//go:build !unix

package hostmem

import (
	"io"
	"os"
)

// MapFile returns the first bytes of a file. It reads them: not every system has a mapping
// that the standard library reaches.
func MapFile(f *os.File, size int) ([]byte, error) {
	content := make([]byte, size)
	_, err := io.ReadFull(io.NewSectionReader(f, 0, int64(size)), content)
	return content, err
}

// UnmapFile releases a mapping of MapFile.
func UnmapFile([]byte) error { return nil }

// Forget does nothing: the memory is not mapped.
func Forget([]byte) {}
