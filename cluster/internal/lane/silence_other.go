//go:build !linux

package lane

import "net"

// limitSilence does nothing here: the system's own timeouts end a connection.
func limitSilence(net.Conn) {}
