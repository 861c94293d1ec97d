package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/secure"
)

// Dialer opens streams for a process that does not listen, such as one that joins or follows a run.
type Dialer struct {
	TLS      *tls.Config // nil: no TLS
	Insecure bool        // allow non-loopback addresses without TLS
}

// Dial opens a stream. ctx bounds the time it takes; LimitHandshakeTime bounds the handshake.
func (d Dialer) Dial(ctx context.Context, address, protocol string) (net.Conn, error) {
	if err := checkProtocol(protocol); err != nil {
		return nil, err
	}
	conn, err := d.open(ctx, address, protocol)
	if err == nil {
		err = handshakeBy(ctx, conn, func() error { return d.greet(conn, protocol) })
	}
	if err != nil {
		if conn != nil {
			_ = conn.Close()
		}
		return nil, fmt.Errorf("dial %s for %s: %w", address, protocol, err)
	}
	return conn, nil
}

// open connects, with TLS if it is configured. alpn names the protocol.
func (d Dialer) open(ctx context.Context, address, alpn string) (net.Conn, error) {
	if err := checkAddress(address); err != nil {
		return nil, err
	}
	raw, err := connect(ctx, address)
	if err != nil {
		return nil, err
	}
	if d.TLS == nil {
		if tcp, ok := raw.RemoteAddr().(*net.TCPAddr); !d.Insecure && (!ok || !tcp.IP.IsLoopback()) {
			_ = raw.Close()
			return nil, fmt.Errorf("%w: %v is not a loopback address", ErrInsecure, raw.RemoteAddr())
		}
		return raw, nil
	}
	config := d.TLS.Clone()
	config.NextProtos = []string{alpn}
	conn := secure.Client(raw, config)
	err = refusal(handshakeBy(ctx, raw, func() error { return conn.HandshakeContext(ctx) }))
	if err == nil && conn.ConnectionState().NegotiatedProtocol != alpn {
		err = fmt.Errorf("%w: it does not speak %s", ErrRefused, alpn)
	}
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

// greet names the protocol, and reads whether the other side accepts it.
func (d Dialer) greet(conn net.Conn, protocol string) error {
	if d.TLS == nil {
		if _, err := conn.Write(preamble(protocol)); err != nil {
			return err
		}
	}
	var answer [1]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: it closed the connection; its log says why: %w", ErrRefused, io.EOF)
		}
		return refusal(err) // in TLS 1.3 the other side refuses a certificate after the handshake
	}
	switch reason, known := answers[answer[0]]; {
	case answer[0] == answerAccepted:
		return nil
	case known:
		return fmt.Errorf("%w: %w", ErrRefused, reason)
	}
	return fmt.Errorf("%w: unknown answer %d; check that both sides run the same build", ErrRefused, answer[0])
}

// refusal marks a TLS error from the other side with ErrRefused.
func refusal(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

// handshakeBy runs f, and cancels it when ctx ends or after LimitHandshakeTime.
func handshakeBy(ctx context.Context, conn net.Conn, f func() error) error {
	_ = conn.SetDeadline(time.Now().Add(LimitHandshakeTime)) // f reports a closed connection
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := f()
	if !stop() && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	return err
}
