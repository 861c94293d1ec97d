//go:build !linux

package lane

import (
	"net"
	"time"
)

// limitSilence does nothing here: the system's own timeouts end a connection.
func limitSilence(net.Conn) {}

// unheard knows nothing here: a peer is taken to be reached for as long as a stream to it stands.
func unheard(net.Conn) (quiet time.Duration, ok bool) { return 0, true }
