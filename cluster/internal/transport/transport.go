package transport

import (
	"context"
	"errors"
	"net"

	"github.com/troupe-ml/troupe/internal/wire"
)

// Peer is the process at the other end, from its certificate. It is the zero Peer without TLS (on
// loopback, in tests), and for a ProtocolJoin stream without a certificate.
type Peer struct {
	Name, Role string
	Address    string // host:port that the other end of the connection dialed from
}

// Transport connects a process to others. Its methods may be called concurrently.
type Transport interface {
	// Address returns the host:port at which others reach this process. It is also the ActorSystem's
	// address.
	Address() string
	// Send sends a control message, or loses it. It never blocks for long, and does not keep m.
	// Messages from one goroutine to an address arrive in order.
	Send(address string, m *wire.Envelope)
	// Redial drops Send's connection to an address, if it is established, with the messages in
	// transit. Later messages use a new connection. It never blocks for long.
	Redial(address string)
	// Dial opens a stream. Its error is ErrRefused if the other side refuses.
	Dial(ctx context.Context, address, protocol string) (net.Conn, error)
	// Close closes all connections that other processes have opened here. Dialed streams stay open
	// and belong to their callers.
	Close()
}

// Handlers handle what a process receives.
type Handlers struct {
	// Envelope is called for each envelope, in order and one at a time for each peer.
	Envelope func(from Peer, m *wire.Envelope)
	// Returned is called when the process at an address has opened a connection for envelopes although
	// an old connection to it exists: the old one may be broken (see Redial). A connecting process can
	// name any address. Returned may be nil.
	Returned func(address string)
	// Streams are the handlers by protocol name. Each call has its own goroutine, owns the connection
	// and closes it. Closing the transport closes the connection too, and the call must then return.
	// Without TLS the connection has the methods of *net.TCPConn, and net.Buffers are written with one
	// system call; with TLS it is a *secure.Conn.
	Streams map[string]func(conn net.Conn, peer Peer)
}

const (
	// ProtocolControl is the name of envelopes' protocol for Config.Allow.
	ProtocolControl = "control"
	// ProtocolJoin is the only protocol that a peer without a certificate may use.
	ProtocolJoin = "join"
	// LinkActor is the id of the only actor that receives messages from other processes.
	LinkActor = "troupe-link"
)

var (
	// ErrInsecure: a connection would cross a network without TLS, and Insecure is not set.
	ErrInsecure = errors.New("without TLS only loopback addresses are allowed")
	// ErrRevoked: the certificate's token was revoked. ErrReplaced: its name now belongs to another key. If Identify returns
	// one of them, the other side learns it.
	ErrRevoked  = errors.New("the token that this process joined with was revoked or is unknown")
	ErrReplaced = errors.New("the name of this process was released or now belongs to another process")
	// ErrRole: the dialing process's role may not use the protocol.
	ErrRole = errors.New("its role may not use this protocol")
	// ErrRefused: the other side refused the connection.
	ErrRefused = errors.New("refused by the other side")
	// ErrClosed: the transport is closed.
	ErrClosed = errors.New("the transport is closed")
	// ErrInUse: the ActorSystem already has, or had, a transport.
	ErrInUse = errors.New("the actor system already has a transport")
)

// Reasons for refusing a connection or a message; they only appear in logs.
var (
	errBusy        = errors.New("too many connections")
	errProtocol    = errors.New("unknown protocol")
	errCertificate = errors.New("it needs a certificate")
	errPlain       = errors.New("it speaks neither this protocol nor gRPC")
	errMessage     = errors.New("forbidden message")
	errReplaced    = errors.New("the connection was dropped for a redial")
)
