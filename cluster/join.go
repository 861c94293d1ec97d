package cluster

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/locate"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/secure"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/wire"
)

// limitJoinBytes bounds the messages of joining: a certificate request and a certificate.
const limitJoinBytes = 64 << 10

// joinTime is how long joining may take.
const joinTime = 10 * time.Second

// ErrRefused: the coordinator does not let this process join.
var ErrRefused = errors.New("the coordinator refused this process")

// join gets a certificate for a token.
func join(ctx context.Context, at *locate.Locator, t pki.Token, name string, kept bool) (cert tls.Certificate, root []byte, err error) {
	key, csr, err := pki.NewRequest(pki.Identity{Name: name, Role: t.Role})
	if err != nil {
		return cert, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	conn, err := at.Dial(ctx, func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := transport.Dialer{TLS: pki.JoinTLS(t)}.Dial(ctx, address, transport.ProtocolJoin)
		return conn, pki.Explain(err)
	})
	if err != nil {
		return cert, nil, err
	}
	defer conn.Close() //nolint:errcheck // it has ended
	if err := conn.SetDeadline(time.Now().Add(joinTime)); err != nil {
		return cert, nil, err
	}
	if err := wire.WriteFrame(conn, &wire.JoinRequest{TokenId: t.ID, Secret: t.Secret[:], Csr: csr, Name: name, Kept: kept},
		limitJoinBytes); err != nil {
		return cert, nil, err
	}
	var r wire.JoinReply
	if err := wire.ReadFrame(conn, &r, limitJoinBytes); err != nil {
		return cert, nil, err
	}
	if r.GetError() != "" {
		err := fmt.Errorf("%w: %.1000s", ErrRefused, r.GetError())
		if of, isName := nameErrors[r.GetName()]; isName {
			return cert, nil, fmt.Errorf("%w: %w", of, err)
		}
		if clock.Now().After(t.Expires) {
			err = fmt.Errorf("%w: it expired at %s; create a new one (engine cluster token)", err, t.Expires.Local().Format(time.DateTime))
		}
		return cert, nil, err
	}
	// The root is the one that the handshake has checked.
	encrypted, ok := conn.(*secure.Conn)
	if !ok {
		return cert, nil, errors.New("the join connection has no TLS")
	}
	if root, err = pki.RootOf(encrypted.ConnectionState()); err != nil {
		return cert, nil, err
	}
	cert, err = pki.Bind(key, r.GetCertificate(), root)
	return cert, root, err
}

// nameErrors are the errors of a name that a process can't have.
var nameErrors = map[wire.JoinReply_Name]error{wire.JoinReply_IN_USE: errNameInUse, wire.JoinReply_HELD: ErrNameHeld,
	wire.JoinReply_LATER: errNameLater}

// renewProtocol is the name of the stream over which a member gets a new certificate.
const renewProtocol = "renew"

// dialCoordinator opens a stream to the coordinator whose authority has a root. It refuses a process
// with another role in its certificate, such as a worker that now has the coordinator's old address.
func dialCoordinator(ctx context.Context, at *locate.Locator, root []byte, k *pki.Keeper, protocol string) (net.Conn, error) {
	return at.Dial(ctx, func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := transport.Dialer{TLS: pki.ClientTLS(root, k.Get, pki.Coordinator)}.Dial(ctx, address, protocol)
		if why := pki.Expired(k, clock.Now()); err != nil && why != nil && errors.Is(err, transport.ErrRefused) {
			return nil, fmt.Errorf("%w: %w", why, err)
		}
		return conn, pki.Explain(err)
	})
}

// renew gets a new certificate from the coordinator.
func renew(ctx context.Context, at *locate.Locator, root []byte, k *pki.Keeper, csr []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	conn, err := dialCoordinator(ctx, at, root, k, renewProtocol)
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // it has ended
	if err := conn.SetDeadline(time.Now().Add(joinTime)); err != nil {
		return nil, err
	}
	if err := wire.WriteFrame(conn, &wire.JoinRequest{Csr: csr}, limitJoinBytes); err != nil {
		return nil, err
	}
	var r wire.JoinReply
	if err := wire.ReadFrame(conn, &r, limitJoinBytes); err != nil {
		return nil, err
	}
	if r.GetError() != "" {
		return nil, fmt.Errorf("%w: %.1000s", ErrRefused, r.GetError())
	}
	return r.GetCertificate(), nil
}

// outlived says why a process that also has a token can't use the certificate in its file: it has
// expired, or the token is for another cluster; "": it can.
func outlived(cert tls.Certificate, root []byte, t pki.Token, now time.Time) string {
	if sha256.Sum256(root) != t.Authority {
		return "the token is for another cluster"
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return err.Error()
	}
	if leaf.Subject.SerialNumber == "" { // see pki.Authority.Accepts
		return "an earlier version created it"
	}
	if now.After(leaf.NotAfter) {
		return fmt.Sprintf("it expired at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return ""
}

// ErrNameHeld: the worker's name belongs to another worker.
var ErrNameHeld = errors.New("the name belongs to another worker")

// The holder of the name is a member, or may have failed.
var (
	errNameInUse = fmt.Errorf("%w, which is in the cluster", ErrNameHeld)
	errNameLater = fmt.Errorf("%w, which may have failed", ErrNameHeld)
)

// ErrRevoked: the token with which the process joined was revoked.
var ErrRevoked = transport.ErrRevoked
