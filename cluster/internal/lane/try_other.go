//go:build !unix

package lane

import "net"

// tryReader is for systems whose sockets can be tried without waiting.
type tryReader struct{}

func newTryReader(net.Conn, func() error, *sleepers) *tryReader { return nil }

func (*tryReader) Read([]byte) (int, error) { return 0, nil }

// sleepers is for Linux.
type sleepers struct{}
