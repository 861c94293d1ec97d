//go:build unix

package lane

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// tryReader reads from a socket, and says when there is nothing to read yet, before it waits.
type tryReader struct {
	raw   syscall.RawConn
	empty func() error // called before the reader waits
	try   func(fd uintptr) bool

	p   []byte
	n   int
	err error
}

// newTryReader returns nil for a connection that isn't a socket.
func newTryReader(conn net.Conn, empty func() error) *tryReader {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	r := &tryReader{raw: raw, empty: empty}
	r.try = r.attempt // made once
	return r
}

// attempt is called with the descriptor when it may be readable; false makes the caller wait.
func (r *tryReader) attempt(fd uintptr) bool {
	for {
		r.n, r.err = syscall.Read(int(fd), r.p)
		switch {
		case errors.Is(r.err, syscall.EINTR):
			continue
		case errors.Is(r.err, syscall.EAGAIN):
			r.err = r.empty()
			return r.err != nil
		case r.err == nil && r.n == 0:
			r.err = io.EOF
		}
		return true
	}
}

func (r *tryReader) Read(p []byte) (int, error) {
	r.p, r.n, r.err = p, 0, nil
	err := r.raw.Read(r.try)
	r.p = nil
	if err == nil {
		err = r.err
	}
	return max(r.n, 0), err
}
