package transport

import (
	"context"
	"errors"
	"net"

	"github.com/troupe-ml/troupe/internal/wire"
)

// Peer is who is at the other end, as its certificate says. Without TLS (on loopback, in
// tests), and for a stream of ProtocolJoin without a certificate, it is the zero Peer.
type Peer struct {
	Name, Role string
	Address    string // host:port of the other end of the connection, which it dialled from
}

// Transport reaches other processes. Its methods may be called by several goroutines.
type Transport interface {
	// Address is the host:port that others reach this process by; also the ActorSystem's
	// address.
	Address() string
	// Send passes a control message on, or loses it; it never blocks for long, and keeps
	// nothing of m. What one goroutine sends to an address arrives in its order.
	Send(address string, m *wire.Envelope)
	// Redial drops the connection over which Send reaches an address, if it stands, with what is
	// under way there: what is sent from then on goes over a new one. It never blocks for long.
	Redial(address string)
	// Dial opens a stream. It fails with ErrRefused where the other side said no.
	Dial(ctx context.Context, address, protocol string) (net.Conn, error)
	// Close ends everything that others have opened here. What was dialled stays its
	// caller's.
	Close()
}

// Handlers are what a process does with what it receives.
type Handlers struct {
	// Envelope is called one after the other for each peer, in order.
	Envelope func(from Peer, m *wire.Envelope)
	// Returned is told, unless it is nil, that the process at an address has opened a connection
	// for envelopes while one to it has stood for long: it may be broken, see Redial. Whoever
	// connects can name any address.
	Returned func(address string)
	// Streams are by protocol name. Each call has a goroutine of its own and owns the
	// connection: it closes it. Close of the transport closes it too, and the call must return
	// then. Without TLS the connection has the methods of *net.TCPConn, and net.Buffers are
	// written to it by one system call; with TLS it is a *secure.Conn.
	Streams map[string]func(conn net.Conn, peer Peer)
}

const (
	// ProtocolControl is what Config.Allow is asked about for envelopes.
	ProtocolControl = "control"
	// ProtocolJoin is the one protocol that a peer without a certificate may use.
	ProtocolJoin = "join"
	// LinkActor is the id of the only actor that receives from other processes.
	LinkActor = "troupe-link"
)

var (
	// ErrInsecure is for what would go over a network without TLS and wasn't asked for.
	ErrInsecure = errors.New("no TLS off loopback")
	// ErrRevoked is for a certificate whose token was revoked, ErrReplaced for one whose name belongs to another key by
	// now. What Identify returns as such is said to the other side.
	ErrRevoked  = errors.New("the token by which this process has joined was revoked, or is not known any more")
	ErrReplaced = errors.New("the name of this process was released, or belongs to another process by now")
	// ErrRole is for a protocol that the role of who dials may not use.
	ErrRole = errors.New("its role may not use this protocol")
	// ErrRefused is for what the other side doesn't let this process do.
	ErrRefused = errors.New("refused by the other side")
	// ErrClosed is for what is asked of a closed transport.
	ErrClosed = errors.New("the transport is closed")
	// ErrInUse is for an ActorSystem that has a transport, or had one.
	ErrInUse = errors.New("the actor system has a transport already")
)

// Reasons why a connection or a message is refused; they are only logged, and tested.
var (
	errBusy        = errors.New("too many connections")
	errProtocol    = errors.New("unknown protocol")
	errCertificate = errors.New("needs a certificate")
	errPlain       = errors.New("speaks neither this protocol nor gRPC")
	errMessage     = errors.New("forbidden message")
	errReplaced    = errors.New("it was dropped, to be dialled again")
)
