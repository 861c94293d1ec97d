package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/secure"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/wire"
)

// limitJoinBytes bounds the messages of joining: a certificate request, a certificate.
const limitJoinBytes = 64 << 10

// joinTime is how long joining may take.
const joinTime = 10 * time.Second

// ErrRefused: the coordinator does not let this process join.
var ErrRefused = errors.New("the coordinator refuses to let this process join")

// join gets a certificate for a token.
func join(ctx context.Context, at *locator, t pki.Token, name string, kept bool) (cert tls.Certificate, root []byte, err error) {
	key, csr, err := pki.NewRequest(pki.Identity{Name: name, Role: t.Role})
	if err != nil {
		return cert, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	conn, err := at.dial(ctx, func(ctx context.Context, address string) (net.Conn, error) {
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
	if err := wire.WriteFrame(conn, &wire.JoinRequest{TokenId: t.ID, Secret: t.Secret[:], Csr: csr, Name: name, Kept: kept}, limitJoinBytes); err != nil {
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
			err = fmt.Errorf("%w: its time was over at %s; make a new one (engine cluster token)", err, t.Expires.Local().Format(time.DateTime))
		}
		return cert, nil, err
	}
	// The root is the one that the handshake has checked.
	encrypted, ok := conn.(*secure.Conn)
	if !ok {
		return cert, nil, errors.New("joining without TLS")
	}
	if root, err = pki.RootOf(encrypted.ConnectionState()); err != nil {
		return cert, nil, err
	}
	cert, err = pki.Bind(key, r.GetCertificate(), root)
	return cert, root, err
}

// nameErrors are what keeps a process from the name that it wants.
var nameErrors = map[wire.JoinReply_Name]error{wire.JoinReply_IN_USE: errNameInUse, wire.JoinReply_HELD: ErrNameHeld, wire.JoinReply_LATER: errNameLater}

// renewProtocol is the name of the stream by which a member gets a new certificate.
const renewProtocol = "renew"

// renew has the coordinator sign a new certificate for the identity that it knows this
// process by.
func (w *worker) renew(ctx context.Context, csr []byte) ([]byte, error) {
	return renew(ctx, w.at, w.root, w.keeper, csr)
}

// dialCoordinator opens a stream to the coordinator, wherever that is now.
func (w *worker) dialCoordinator(ctx context.Context, protocol string) (net.Conn, error) {
	return dialCoordinator(ctx, w.at, w.root, w.keeper, protocol)
}

// dialCoordinator opens a stream to the coordinator of the authority with a root. What has a
// certificate of the authority in another role, such as a worker that now has the address, is
// not it.
func dialCoordinator(ctx context.Context, at *locator, root []byte, k *pki.Keeper, protocol string) (net.Conn, error) {
	return at.dial(ctx, func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := transport.Dialer{TLS: pki.ClientTLS(root, k.Get, pki.Coordinator)}.Dial(ctx, address, protocol)
		if why := pki.Expired(k, clock.Now()); err != nil && why != nil && errors.Is(err, transport.ErrRefused) {
			return nil, fmt.Errorf("%w: %w", why, err)
		}
		return conn, pki.Explain(err)
	})
}

// renew has the coordinator sign a new certificate.
func renew(ctx context.Context, at *locator, root []byte, k *pki.Keeper, csr []byte) ([]byte, error) {
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

// serveRenew is the coordinator's side: a certificate lives on as long as its holder asks, and nothing behind it was revoked.
func (c *Coordinator) serveRenew(conn net.Conn, p transport.Peer) {
	defer conn.Close() //nolint:errcheck // it has ended
	encrypted, ok := conn.(*secure.Conn)
	if !ok {
		return
	}
	var r wire.JoinRequest
	err := conn.SetDeadline(time.Now().Add(joinTime))
	if err == nil {
		err = wire.ReadFrame(conn, &r, limitJoinBytes)
	}
	answer := &wire.JoinReply{}
	if err == nil {
		answer.Certificate, err = c.authority.Renew(encrypted.ConnectionState().PeerCertificates[0], r.GetCsr(), clock.Now()) // the gate has checked it
	}
	if err != nil {
		c.log.Warn("no new certificate", "name", p.Name, "err", err)
		answer.Error = err.Error()
	}
	_ = wire.WriteFrame(conn, answer, limitJoinBytes)
}

// serveJoin is the coordinator's side: it gives whoever has a token a certificate.
func (c *Coordinator) serveJoin(conn net.Conn, _ transport.Peer) {
	defer conn.Close() //nolint:errcheck // it has ended
	var r wire.JoinRequest
	err := conn.SetDeadline(time.Now().Add(joinTime))
	if err == nil {
		err = wire.ReadFrame(conn, &r, limitJoinBytes)
	}
	if err != nil {
		c.log.Warn("nobody joins", "from", conn.RemoteAddr(), "err", err)
		return
	}
	answer := &wire.JoinReply{}
	cert, id, err := c.signJoin(&r)
	switch {
	case err == nil:
		answer.Certificate, answer.Root = cert, c.authority.Root()
		level := slog.LevelDebug // with each of their commands; those that change something are logged
		if id.Role == pki.Worker {
			level = slog.LevelInfo
		}
		c.log.Log(context.Background(), level, "gave a certificate", "name", id.Name, "role", id.Role, "from", conn.RemoteAddr())
	case errors.Is(err, pki.ErrTokenRefused):
		answer.Error = pki.ErrTokenRefused.Error() // why is for the log alone
	default:
		answer.Error, answer.Name = err.Error(), nameOf(err)
	}
	if err != nil {
		c.log.Warn("refused to let a process join", "from", conn.RemoteAddr(), "name", fmt.Sprintf("%.100q", r.GetName()), "err", err)
	}
	_ = wire.WriteFrame(conn, answer, limitJoinBytes)
}

// nameOf says what of an error is about the name.
func nameOf(err error) wire.JoinReply_Name {
	switch {
	case errors.Is(err, errNameLater):
		return wire.JoinReply_LATER
	case errors.Is(err, pki.ErrNameInUse):
		return wire.JoinReply_IN_USE
	case errors.Is(err, pki.ErrNameHeld):
		return wire.JoinReply_HELD
	}
	return wire.JoinReply_OTHER
}

// signJoin checks a request. Names of workers have one holder each: see pki.Joining.
func (c *Coordinator) signJoin(r *wire.JoinRequest) ([]byte, pki.Identity, error) {
	if r.GetName() == coordinatorName {
		return nil, pki.Identity{}, fmt.Errorf("%q is the coordinator's own name; choose another (--name)", coordinatorName)
	}
	cert, id, err := c.authority.Join(pki.Joining{TokenID: r.GetTokenId(), Secret: r.GetSecret(), CSR: r.GetCsr(), Name: r.GetName(), Kept: r.GetKept(), InUse: c.inUse}, clock.Now())
	if err == nil && id.Role == pki.Worker {
		c.names.expected(id.Name)
	}
	return cert, id, err
}
