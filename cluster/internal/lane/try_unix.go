//go:build unix

package lane

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// tryReader reads from a socket, and calls empty before it waits for data.
type tryReader struct {
	raw      syscall.RawConn
	empty    func() error // called before the reader waits
	try      func(fd uintptr) bool
	sleepers *sleepers // nil: the reader goes to sleep at once
	asleep   uintptr   // the descriptor among the sleepers, plus 1
	poll     pollList  // buffer for sleepers.watch

	p   []byte
	n   int
	err error
}

// newTryReader returns nil for a connection that isn't a socket.
func newTryReader(conn net.Conn, empty func() error, sleepers *sleepers) *tryReader {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	r := &tryReader{raw: raw, empty: empty, sleepers: sleepers}
	r.try = r.attempt // made once
	return r
}

// attempt reads from the descriptor; false makes the caller wait until it is readable.
func (r *tryReader) attempt(fd uintptr) bool {
	r.wake()
	for {
		r.n, r.err = syscall.Read(int(fd), r.p)
		switch {
		case errors.Is(r.err, syscall.EINTR):
			continue
		case errors.Is(r.err, syscall.EAGAIN):
			if r.err = r.empty(); r.err != nil || r.sleepers == nil {
				return r.err != nil
			}
			if r.sleepers.watch(fd, &r.poll) {
				continue
			}
			r.sleepers.add(fd)
			r.asleep = fd + 1
			return false
		case r.err == nil && r.n == 0:
			r.err = io.EOF
		}
		return true
	}
}

// wake removes the reader from the sleepers.
func (r *tryReader) wake() {
	if r.asleep > 0 {
		r.sleepers.remove(r.asleep - 1)
		r.asleep = 0
	}
}

func (r *tryReader) Read(p []byte) (int, error) {
	r.p, r.n, r.err = p, 0, nil
	err := r.raw.Read(r.try)
	r.wake() // a closed connection ends the wait without another attempt
	r.p = nil
	if err == nil {
		err = r.err
	}
	return max(r.n, 0), err
}
