package pki

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/clock"
)

// serverName is a DNS name that every certificate has. It replaces the address, which is not
// compared, so that the standard library's check of a server works unchanged.
const serverName = "troupe"

// ServerTLS returns the TLS config of a listener. It checks a client's certificate if the client gives
// one; a joining process has none yet, so call IdentityOf before serving anything else. In TLS 1.3 a
// client learns from its first read that its certificate was refused. The caller sets NextProtos.
func ServerTLS(root []byte, cert func() (*tls.Certificate, error)) *tls.Config {
	pool, rootErr := poolOf(root)
	c := base()
	c.ClientAuth = tls.VerifyClientCertIfGiven
	c.ClientCAs = pool
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert() }
	c.VerifyConnection = func(state tls.ConnectionState) error {
		if rootErr != nil {
			return rootErr
		}
		if len(state.PeerCertificates) == 0 {
			return nil
		}
		_, err := IdentityOf(state)
		return err
	}
	return c
}

// ClientTLS returns the TLS config for dialing a process of the cluster. The process's certificate
// must be from the authority and have one of the roles in want. The default is the roles that listen:
// Coordinator and Worker. If cert is nil, the client has no certificate.
func ClientTLS(root []byte, cert func() (*tls.Certificate, error), want ...Role) *tls.Config {
	pool, rootErr := poolOf(root)
	if len(want) == 0 {
		want = []Role{Coordinator, Worker}
	}
	want = slices.Clone(want)
	c := base()
	c.RootCAs = pool
	c.ServerName = serverName
	if cert != nil {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert() }
	}
	c.VerifyConnection = func(state tls.ConnectionState) error {
		if rootErr != nil {
			return rootErr
		}
		id, err := IdentityOf(state)
		if err != nil {
			return err
		}
		return checkRole(id, want)
	}
	return c
}

// ClientTLSTo is ClientTLS for a process with a known name; "": the name is not known.
func ClientTLSTo(name string, root []byte, cert func() (*tls.Certificate, error), want ...Role) *tls.Config {
	c := ClientTLS(root, cert, want...)
	verify := c.VerifyConnection
	c.VerifyConnection = func(state tls.ConnectionState) error {
		if err := verify(state); err != nil || name == "" {
			return err
		}
		id, err := IdentityOf(state)
		if err == nil && id.Name != name {
			err = fmt.Errorf("%w: the process there is %s; want %s", ErrName, id, name)
		}
		return err
	}
	return c
}

// JoinTLS returns the TLS config for dialing a coordinator with only a token. The handshake fails, and
// the secret is not sent, unless the peer is the coordinator of the token's authority. After the
// handshake RootOf returns the root certificate.
func JoinTLS(t Token) *tls.Config {
	hash := t.Authority
	c := base()
	c.ServerName = serverName
	// The root is not known before the peer sends it, so verifyJoin does the whole check.
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(state tls.ConnectionState) error { return verifyJoin(state, hash) }
	return c
}

func verifyJoin(state tls.ConnectionState, hash [32]byte) error {
	root, err := sentRoot(state)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrImpostor, err)
	}
	if got := sha256.Sum256(root.Raw); got != hash {
		return fmt.Errorf("%w: its authority is %x…, the token's is %x…; check the address, and that the token is from this cluster", ErrImpostor,
			got[:8], hash[:8])
	}
	leaf := state.PeerCertificates[0]
	pool := x509.NewCertPool()
	pool.AddCert(root)
	// Without KeyUsages this requires a server's certificate.
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: serverName, CurrentTime: clock.Now()}); err != nil {
		return fmt.Errorf("%w: %w", ErrImpostor, err)
	}
	id, err := identityIn(leaf)
	if err == nil {
		err = checkRole(id, []Role{Coordinator})
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrImpostor, err)
	}
	return nil
}

// RootOf returns the root certificate's DER on a connection with a TLS config of this package.
func RootOf(state tls.ConnectionState) ([]byte, error) {
	if len(state.VerifiedChains) > 0 && len(state.VerifiedChains[0]) > 0 {
		chain := state.VerifiedChains[0]
		return bytes.Clone(chain[len(chain)-1].Raw), nil
	}
	root, err := sentRoot(state)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(root.Raw), nil
}

// sentRoot returns the root that a peer has sent with its certificate, unchecked.
func sentRoot(state tls.ConnectionState) (*x509.Certificate, error) {
	if n := len(state.PeerCertificates); n == 0 {
		return nil, ErrNoIdentity
	} else if n != 2 {
		return nil, fmt.Errorf("the peer sent %d certificates; want its own and the authority's", n)
	}
	return state.PeerCertificates[1], nil
}

func checkRole(id Identity, want []Role) error {
	if !slices.Contains(want, id.Role) {
		return fmt.Errorf("%w: the peer is %s; want %v", ErrRole, id, want)
	}
	return nil
}

// base returns the common TLS config. Sessions are not resumed: connections are long-lived, and a
// resumed session would rely on an earlier check.
func base() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
		Time:                   clock.Now,
	}
}

// poolOf returns a pool with only the root. It is never nil, which would mean the system's pool.
func poolOf(rootDER []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	root, err := parseCertificate(rootDER)
	if err == nil && !root.IsCA {
		err = errors.New("it does not belong to an authority")
	}
	if err != nil {
		return pool, fmt.Errorf("check the root certificate of this process: %w", err)
	}
	pool.AddCert(root)
	return pool, nil
}
