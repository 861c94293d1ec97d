package transport

import (
	"io"

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
