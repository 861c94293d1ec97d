package transport_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/transport"
)

// TestAwaitCleared: a handler begins after gRPC has cleared the deadlines, not before.
func TestAwaitCleared(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, closed := range []bool{false, true} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if err := conn.SetWriteDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		var cleared atomic.Bool
		time.AfterFunc(20*time.Millisecond, func() { // as gRPC does some time after the handshake
			cleared.Store(true)
			if closed {
				_ = conn.Close()
			} else {
				_ = conn.SetDeadline(time.Time{})
			}
		})
		transport.AwaitCleared(conn)
		if !cleared.Load() {
			t.Error("it did not wait")
		}
	}
}
