package cluster

import (
	"context"
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

// serveJoin is the coordinator's side of joining: it gives a process with a valid token a certificate.
func (c *Coordinator) serveJoin(conn net.Conn, _ transport.Peer) {
	defer conn.Close() //nolint:errcheck // it has ended
	var r wire.JoinRequest
	err := conn.SetDeadline(time.Now().Add(joinTime))
	if err == nil {
		err = wire.ReadFrame(conn, &r, limitJoinBytes)
	}
	if err != nil {
		c.log.Warn("can't read a join request", "from", conn.RemoteAddr(), "err", err)
		return
	}
	answer := &wire.JoinReply{}
	cert, id, err := c.signJoin(&r)
	switch {
	case err == nil:
		answer.Certificate, answer.Root = cert, c.authority.Root()
		level := slog.LevelDebug // operators and viewers get one at each command
		if id.Role == pki.Worker {
			level = slog.LevelInfo
		}
		c.log.Log(context.Background(), level, "issued a certificate", "name", id.Name, "role", id.Role, "from", conn.RemoteAddr())
	case errors.Is(err, pki.ErrTokenRefused):
		answer.Error = pki.ErrTokenRefused.Error() // only the log says why
	default:
		answer.Error, answer.Name = err.Error(), nameOf(err)
	}
	if err != nil {
		c.log.Warn("refused a join request", "from", conn.RemoteAddr(), "name", fmt.Sprintf("%.100q", r.GetName()), "err", err)
	}
	_ = wire.WriteFrame(conn, answer, limitJoinBytes)
}

// signJoin checks a join request and signs the certificate. Each worker's name has one holder: see pki.Joining.
func (c *Coordinator) signJoin(r *wire.JoinRequest) ([]byte, pki.Identity, error) {
	if r.GetName() == coordinatorName {
		return nil, pki.Identity{}, fmt.Errorf("the name %q is reserved for the coordinator; choose another name (--name)", coordinatorName)
	}
	cert, id, err := c.authority.Join(pki.Joining{TokenID: r.GetTokenId(), Secret: r.GetSecret(), CSR: r.GetCsr(), Name: r.GetName(),
		Kept: r.GetKept(), InUse: c.inUse}, clock.Now())
	if err == nil && id.Role == pki.Worker {
		c.names.expected(id.Name)
	}
	return cert, id, err
}

// nameOf returns an error's kind if it is about the name.
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

// serveRenew is the coordinator's side of renewal: a holder may renew its certificate until its token is revoked.
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
		// the handshake has checked the certificate
		answer.Certificate, err = c.authority.Renew(encrypted.ConnectionState().PeerCertificates[0], r.GetCsr(), clock.Now())
	}
	if err != nil {
		c.log.Warn("can't renew a certificate", "name", p.Name, "err", err)
		answer.Error = err.Error()
	}
	_ = wire.WriteFrame(conn, answer, limitJoinBytes)
}
