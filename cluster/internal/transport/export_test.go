package transport

import (
	"io"
	"net"

	"github.com/asynkron/protoactor-go/remote"
)

// Of tests only.
var (
	CheckEncoded = checkEncoded
	CheckAddress = checkAddress
	ErrMessage   = errMessage
)

const (
	RecvBytesMax = recvBytesMax
	Magic        = magic
)

func ReadPreamble(r io.Reader) (protocol string, control bool, err error) { return readPreamble(r) }

// Guard is a guard whose stream has had its connect request.
type Guard struct{ g guard }

func NewGuard(p Peer, known bool) *Guard {
	return &Guard{guard{peer: p, known: known, connected: true}}
}

func NewUnconnectedGuard() *Guard { return &Guard{} }

func (g *Guard) Check(m *remote.RemoteMessage) error { return g.g.check(m) }

// Dialed counts the addresses to which control streams are open or dialed.
func (t *TCP) Dialed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.streams)
}

// AwaitCleared returns when conn's deadline for writing, now in the past, is cleared.
func AwaitCleared(conn net.Conn) { awaitCleared(conn) }
