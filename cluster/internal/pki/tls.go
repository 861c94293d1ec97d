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

// serverName is a DNS name that every certificate has. It stands for the address, which is
// not compared; the standard library's check of a server then works as it is.
const serverName = "troupe"

// ServerTLS is for a listener. A client's certificate is checked if it gives one: a joiner has
// none yet, so ask IdentityOf before serving anything else. In TLS 1.3 a client whose
// certificate is refused learns so from its first read. The caller sets NextProtos.
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

// ClientTLS is for dialling a process of the cluster: its certificate must be the authority's
// and name a process with one of the roles in want. Without any these are the roles that
// listen, Coordinator and Worker. Where cert is nil, the client has no certificate.
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

// ClientTLSTo is ClientTLS for a process of which the name is known; "": it is not.
func ClientTLSTo(name string, root []byte, cert func() (*tls.Certificate, error), want ...Role) *tls.Config {
	c := ClientTLS(root, cert, want...)
	verify := c.VerifyConnection
	c.VerifyConnection = func(state tls.ConnectionState) error {
		if err := verify(state); err != nil || name == "" {
			return err
		}
		id, err := IdentityOf(state)
		if err == nil && id.Name != name {
			err = fmt.Errorf("%w: the process is %s; want %s", ErrName, id, name)
		}
		return err
	}
	return c
}

// JoinTLS is for dialling a coordinator with nothing but a token: the handshake fails, and the
// secret stays here, unless the peer is a coordinator of the token's authority. Then RootOf
// gives the root certificate.
func JoinTLS(t Token) *tls.Config {
	hash := t.Authority
	c := base()
	c.ServerName = serverName
	// The root is not known before the peer sends it: verifyJoin does all of the check.
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
		return fmt.Errorf("%w: its authority is %x…, the token's %x…: is this the right address, and the token of this cluster?", ErrImpostor,
			got[:8], hash[:8])
	}
	leaf := state.PeerCertificates[0]
	pool := x509.NewCertPool()
	pool.AddCert(root)
	// Without KeyUsages this asks for a server's.
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

// RootOf is the root certificate's DER of a connection that was made with a configuration of
// this package.
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

// sentRoot is the root that a peer has sent below its certificate, unchecked.
func sentRoot(state tls.ConnectionState) (*x509.Certificate, error) {
	if n := len(state.PeerCertificates); n == 0 {
		return nil, ErrNoIdentity
	} else if n != 2 {
		return nil, fmt.Errorf("it sent %d certificates; want its own and the authority's", n)
	}
	return state.PeerCertificates[1], nil
}

func checkRole(id Identity, want []Role) error {
	if !slices.Contains(want, id.Role) {
		return fmt.Errorf("%w: the peer is %s; want %v", ErrRole, id, want)
	}
	return nil
}

// base is what all configurations have. Sessions are not resumed: connections live long, and
// a resumed one would carry what was checked at another time.
func base() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
		Time:                   clock.Now,
	}
}

// poolOf is a pool with the root alone; never nil, which would mean the system's.
func poolOf(rootDER []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	root, err := parseCertificate(rootDER)
	if err == nil && !root.IsCA {
		err = errors.New("it is not an authority's")
	}
	if err != nil {
		return pool, fmt.Errorf("the root certificate of this process: %w", err)
	}
	pool.AddCert(root)
	return pool, nil
}
