//go:build unix

package control

import (
	"errors"
	"syscall"
)

// refusedByNobody reports whether nobody listens at a socket: the process that made it has ended.
func refusedByNobody(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
