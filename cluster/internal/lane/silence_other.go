//go:build !linux

package lane

import (
	"net"
	"time"
)

// limitSilence does nothing on this system; its own timeouts end a connection.
func limitSilence(net.Conn) {}

// unheard can't know on this system: a peer counts as reachable while a stream to it is open.
func unheard(net.Conn) (quiet time.Duration, ok bool) { return 0, true }
