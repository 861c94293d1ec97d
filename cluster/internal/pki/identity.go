package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// A Role says what a process may do.
type Role string

// The roles.
const (
	Coordinator Role = "coordinator" // holds the authority and runs
	Worker      Role = "worker"      // computes stages
	Operator    Role = "operator"    // starts, changes and stops runs
	Viewer      Role = "viewer"      // watches
)

// roles in the order of their numbers in a token, which begin with 1. Never change the order.
var roles = []Role{Coordinator, Worker, Operator, Viewer}

// Check returns an error if the role does not exist.
func (r Role) Check() error {
	if !slices.Contains(roles, r) {
		return fmt.Errorf("%w: the role is %s; want coordinator, worker, operator or viewer", ErrIdentity, strictjson.Quote(string(r)))
	}
	return nil
}

// An Identity is the content of a certificate: the name of a process and its role, but no address.
type Identity struct {
	Name string
	Role Role
}

func (i Identity) String() string { return string(i.Role) + " " + strictjson.Plain(i.Name) }

// Check returns an error if the identity is invalid. Names follow the rules for Kubernetes pods:
// lower-case letters, digits, '-' and '.'; each part between dots begins and ends with a letter or
// a digit.
func (i Identity) Check() error {
	if err := i.Role.Check(); err != nil {
		return err
	}
	if len(i.Name) == 0 || len(i.Name) > nameBytesMax {
		return fmt.Errorf("%w: the name %s has %d bytes; want 1 to %d", ErrIdentity, strictjson.Quote(i.Name), len(i.Name), nameBytesMax)
	}
	for part := range strings.SplitSeq(i.Name, ".") {
		inner := strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789-")
		if part == "" || inner != "" || part[0] == '-' || part[len(part)-1] == '-' {
			return fmt.Errorf("%w: the name is %s; want lower-case letters, digits, - and ., and a letter or digit at both ends of each part between dots",
				ErrIdentity, strictjson.Quote(i.Name))
		}
	}
	return nil
}

// uri returns the identity as the URI in a certificate.
func (i Identity) uri() *url.URL {
	return &url.URL{Scheme: "troupe", Host: string(i.Role), Path: "/" + i.Name}
}

// identityIn returns the identity in a certificate, which must have exactly one URI.
func identityIn(cert *x509.Certificate) (Identity, error) {
	if len(cert.URIs) != 1 {
		return Identity{}, fmt.Errorf("%w: the certificate has %d URIs; want one, troupe://ROLE/NAME", ErrIdentity, len(cert.URIs))
	}
	uri := cert.URIs[0]
	id := Identity{Name: strings.TrimPrefix(uri.Path, "/"), Role: Role(uri.Host)}
	if err := id.Check(); err != nil {
		return Identity{}, fmt.Errorf("the certificate's URI is %s: %w", strictjson.Quote(uri.String()), err)
	}
	if got := uri.String(); got != id.uri().String() {
		return Identity{}, fmt.Errorf("%w: the certificate's URI is %s; want %s", ErrIdentity, strictjson.Quote(got), id.uri())
	}
	if cert.IsCA {
		return Identity{}, fmt.Errorf("%w: the certificate belongs to an authority, not to a process", ErrIdentity)
	}
	return id, nil
}

// IdentityOf returns the peer's identity on a connection with ServerTLS or ClientTLS. The error is
// ErrNoIdentity if the peer gave no certificate, and for connections with JoinTLS.
func IdentityOf(state tls.ConnectionState) (Identity, error) {
	// Not PeerCertificates, which are unverified.
	if len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return Identity{}, ErrNoIdentity
	}
	return identityIn(state.VerifiedChains[0][0])
}

// NameIn returns the name in this process's certificate; "": it has none.
func NameIn(cert tls.Certificate) string { return ownIdentity(cert).Name }

// RoleIn returns the role in this process's certificate; "": it has none.
func RoleIn(cert tls.Certificate) Role { return ownIdentity(cert).Role }

func ownIdentity(cert tls.Certificate) Identity {
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return Identity{}
	}
	id, _ := identityIn(leaf) // empty with an error
	return id
}
