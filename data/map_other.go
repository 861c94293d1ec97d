//go:build !unix

package data

import (
	"io"
	"os"
)

// mapFile reads the first size bytes of a file: here nothing is mapped.
func mapFile(f *os.File, size int) ([]byte, func() error, error) {
	bytes := make([]byte, size)
	if _, err := io.ReadFull(f, bytes); err != nil {
		return nil, nil, err
	}
	return bytes, func() error { return nil }, nil
}
