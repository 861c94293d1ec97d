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

// alpnHTTP2 is the name by which protoactor's gRPC is asked for.
const alpnHTTP2 = "h2"

// gate is the credentials that gRPC's server has: it sees every connection first, keeps those
// of gRPC for it, and hands the others to their handlers.
type gate struct{ t *TCP }

// identity is who opened a connection of gRPC's; the guard finds it by peer.FromContext.
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
	// gRPC clears the deadlines of what it gave us some time after we return, and would clear
	// the handler's: so the handler begins when it has. A deadline in the past tells.
	_ = raw.SetWriteDeadline(time.Unix(1, 0))
	g.t.serve(protocol, conn, peer, func() { awaitCleared(raw) })
	return nil, nil, credentials.ErrConnDispatched
}

// awaitCleared returns when writing is possible again, or the connection is closed.
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
	return nil, nil, errors.New("the gate is for servers")
}
func (gate) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "troupe"}
}
func (g gate) Clone() credentials.TransportCredentials { return g }
func (gate) OverrideServerName(string) error           { return nil }

// receive admits a connection and learns what it speaks and who it is. Where it fails the
// connection is closed and logged. control: whether it may be gRPC's.
func (t *TCP) receive(raw net.Conn, control bool) (net.Conn, string, Peer, error) {
	c, err := t.admission.admit(raw)
	if err != nil {
		_ = raw.Close()
		t.refuse(raw.RemoteAddr(), err)
		return nil, "", Peer{}, err
	}
	_ = c.SetDeadline(time.Now().Add(LimitHandshakeTime)) // a closed connection is noticed below
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
			return nil, "", Peer{}, fmt.Errorf("%w: gRPC, at the address of data", errProtocol)
		case t.cfg.Streams[protocol] == nil:
			_, _ = c.Write([]byte{answerProtocol}) // it is refused all the same
			return nil, "", Peer{}, fmt.Errorf("%w %q", errProtocol, protocol)
		}
		return c, protocol, Peer{}, nil
	}
	conn := secure.Server(c, t.serverTLS)
	ctx, cancel := context.WithTimeout(t.ctx, LimitHandshakeTime)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, "", Peer{}, fmt.Errorf("TLS: %w", err)
	}
	state := conn.ConnectionState()
	protocol := state.NegotiatedProtocol
	switch {
	case protocol == alpnHTTP2 && control:
		protocol = ProtocolControl
	case t.cfg.Streams[protocol] == nil:
		return nil, "", Peer{}, fmt.Errorf("%w %q by ALPN", errProtocol, protocol)
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
		err = fmt.Errorf("%s: %w: %s is %q", protocol, ErrRole, peer.Name, peer.Role)
	default:
		if err := c.shown(state); err != nil {
			return nil, "", Peer{}, err
		}
		return conn, protocol, peer, nil
	}
	if protocol != ProtocolControl {
		_, _ = conn.Write([]byte{answer}) // it is refused all the same
	}
	return nil, "", Peer{}, err
}

// identify is the peer of a verified certificate; without one it is the zero Peer.
func (t *TCP) identify(state tls.ConnectionState, addr net.Addr) (Peer, error) {
	// Not PeerCertificates: those are only what the peer said.
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

// serve gives a connection to its handler, in a goroutine that ends with the handler.
func (t *TCP) serve(protocol string, conn net.Conn, peer Peer, before func()) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		_ = conn.Close() // admission closes what it had; this came at the same time
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

// refuse logs what was refused.
func (t *TCP) refuse(from net.Addr, err error) {
	if t.ctx.Err() != nil {
		return
	}
	t.lines.log(slog.LevelWarn, "connection refused", slog.Any("from", from), slog.String("why", err.Error()))
}

// replayed gives its reader again what has been read.
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
