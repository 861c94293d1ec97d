//go:build !unix

package lane

import "net"

// tryReader is used on systems that can read from a socket without waiting.
type tryReader struct{}

func newTryReader(net.Conn, func() error, *sleepers) *tryReader { return nil }

func (*tryReader) Read([]byte) (int, error) { return 0, nil }

// sleepers is used only on Linux.
type sleepers struct{}
