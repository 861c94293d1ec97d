package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/troupe-ml/troupe/cluster/internal/secure"
)

// alpnHTTP2 is the ALPN name of protoactor's gRPC.
const alpnHTTP2 = "h2"

// gate is the credentials of gRPC's server. It gets every connection first, leaves those for gRPC to
// the server, and passes the others to their handlers.
type gate struct{ t *TCP }

// identity is the process that opened a gRPC connection. The guard gets it from peer.FromContext.
type identity struct {
	credentials.CommonAuthInfo
	peer  Peer
	known bool // with TLS
}

func (identity) AuthType() string { return "troupe" }

func (g gate) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, protocol, peer, err := g.t.receive(raw, true)
	switch {
	case err != nil:
		return nil, nil, err
	case protocol == ProtocolControl:
		return conn, identity{peer: peer, known: g.t.serverTLS != nil}, nil
	}
	// gRPC clears the deadlines of a connection some time after this returns, and would clear those
	// of the handler. So the handler begins after that: a deadline in the past shows when it is cleared.
	_ = raw.SetWriteDeadline(time.Unix(1, 0))
	g.t.serve(protocol, conn, peer, func() { awaitCleared(raw) })
	return nil, nil, credentials.ErrConnDispatched
}

// awaitCleared waits until the write deadline is cleared or the connection is closed.
func awaitCleared(raw net.Conn) {
	for pause := 10 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		_, err := raw.Write(nil)
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			return
		}
		time.Sleep(pause)
	}
}

func (gate) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("the gate is only for servers")
}
func (gate) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "troupe"}
}
func (g gate) Clone() credentials.TransportCredentials { return g }
func (gate) OverrideServerName(string) error           { return nil }

// receive admits a connection and identifies its protocol and its peer. If that fails, it logs the
// reason and closes the connection. control says whether gRPC is allowed.
func (t *TCP) receive(raw net.Conn, control bool) (net.Conn, string, Peer, error) {
	c, err := t.admission.admit(raw)
	if err != nil {
		_ = raw.Close()
		t.refuse(raw.RemoteAddr(), err)
		return nil, "", Peer{}, err
	}
	_ = c.SetDeadline(time.Now().Add(LimitHandshakeTime)) // shake reports a closed connection
	conn, protocol, peer, err := t.shake(c, control)
	if err == nil {
		err = c.shaken()
	}
	if err != nil {
		_ = c.Close()
		t.refuse(raw.RemoteAddr(), err)
		return nil, "", Peer{}, err
	}
	_ = c.SetDeadline(time.Time{})
	return conn, protocol, peer, nil
}

func (t *TCP) shake(c *admitted, control bool) (net.Conn, string, Peer, error) {
	if t.serverTLS == nil {
		protocol, http2, err := readPreamble(c)
		switch {
		case err != nil:
			return nil, "", Peer{}, err
		case http2 && control:
			return &replayed{Conn: c, first: []byte(http2Preface[:len(magic)])}, ProtocolControl, Peer{}, nil
		case http2:
			return nil, "", Peer{}, fmt.Errorf("%w: gRPC at the address for tensors", errProtocol)
		case t.cfg.Streams[protocol] == nil:
			_, _ = c.Write([]byte{answerProtocol}) // it is refused even if this fails
			return nil, "", Peer{}, fmt.Errorf("%w %q", errProtocol, protocol)
		}
		return c, protocol, Peer{}, nil
	}
	conn := secure.Server(c, t.serverTLS)
	ctx, cancel := context.WithTimeout(t.ctx, LimitHandshakeTime)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, "", Peer{}, fmt.Errorf("TLS handshake: %w", err)
	}
	state := conn.ConnectionState()
	protocol := state.NegotiatedProtocol
	switch {
	case protocol == alpnHTTP2 && control:
		protocol = ProtocolControl
	case t.cfg.Streams[protocol] == nil:
		return nil, "", Peer{}, fmt.Errorf("%w %q in ALPN", errProtocol, protocol)
	}
	peer, err := t.identify(state, c.RemoteAddr())
	var answer byte
	switch {
	case peer == (Peer{}) && protocol != ProtocolJoin:
		switch answer = answerCertificate; {
		case err == nil:
			err = errCertificate
		case errors.Is(err, ErrRevoked):
			answer = answerRevoked
		case errors.Is(err, ErrReplaced):
			answer = answerReplaced
		}
		err = fmt.Errorf("%s: %w", protocol, err)
	case peer != (Peer{}) && t.cfg.Allow != nil && !t.cfg.Allow(peer, protocol):
		answer = answerRole
		err = fmt.Errorf("%s: %w: %s has the role %q", protocol, ErrRole, peer.Name, peer.Role)
	default:
		if err := c.shown(state); err != nil {
			return nil, "", Peer{}, err
		}
		return conn, protocol, peer, nil
	}
	if protocol != ProtocolControl {
		_, _ = conn.Write([]byte{answer}) // it is refused even if this fails
	}
	return nil, "", Peer{}, err
}

// identify returns the peer of a verified certificate, or the zero Peer if there is no certificate.
func (t *TCP) identify(state tls.ConnectionState, addr net.Addr) (Peer, error) {
	// Not PeerCertificates, which are unverified.
	if len(state.VerifiedChains) == 0 {
		return Peer{}, nil
	}
	name, role, err := t.cfg.Identify(state)
	switch {
	case err != nil:
		return Peer{}, err
	case name == "" || len(name) > LimitNameBytes:
		return Peer{}, fmt.Errorf("%w: its name has %d bytes; want 1 to %d", errCertificate, len(name), LimitNameBytes)
	}
	return Peer{Name: name, Role: role, Address: addr.String()}, nil
}

// serve passes a connection to its handler, in a goroutine that ends with the handler.
func (t *TCP) serve(protocol string, conn net.Conn, peer Peer, before func()) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		_ = conn.Close() // it came while admission closed the others
		return
	}
	t.handlers.Add(1)
	t.mu.Unlock()
	go func() { // ends with the handler, whose connection Close closes
		defer t.handlers.Done()
		if before != nil {
			before()
		}
		_ = conn.SetWriteDeadline(time.Now().Add(LimitHandshakeTime))
		if _, err := conn.Write([]byte{answerAccepted}); err != nil {
			_ = conn.Close()
			return
		}
		_ = conn.SetWriteDeadline(time.Time{})
		t.cfg.Streams[protocol](conn, peer)
	}()
}

// refuse logs a refused connection.
func (t *TCP) refuse(from net.Addr, err error) {
	if t.ctx.Err() != nil {
		return
	}
	t.lines.log(slog.LevelWarn, "connection refused", slog.Any("from", from), slog.String("why", err.Error()))
}

// replayed returns bytes that were already read to its reader again.
type replayed struct {
	net.Conn
	first []byte
}

func (r *replayed) Read(p []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(p, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.Conn.Read(p)
}
