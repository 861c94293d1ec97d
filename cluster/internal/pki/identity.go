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

// roles in the order of their numbers in a token, which begin with 1: never change it.
var roles = []Role{Coordinator, Worker, Operator, Viewer}

// Check says whether there is such a role.
func (r Role) Check() error {
	if !slices.Contains(roles, r) {
		return fmt.Errorf("%w: the role is %s; want coordinator, worker, operator or viewer", ErrIdentity, strictjson.Quote(string(r)))
	}
	return nil
}

// An Identity is what a certificate says: the name of a process and its role, never an
// address.
type Identity struct {
	Name string
	Role Role
}

func (i Identity) String() string { return string(i.Role) + " " + strictjson.Plain(i.Name) }

// Check says whether a process can have this identity. Names are as those of Kubernetes
// pods: lower-case letters, digits, '-' and '.', the first and the last of each part between
// dots a letter or a digit.
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
			return fmt.Errorf("%w: the name %s; want lower-case letters, digits, - and ., each part between dots with a letter or digit at both ends",
				ErrIdentity, strictjson.Quote(i.Name))
		}
	}
	return nil
}

// uri is the identity as a certificate has it.
func (i Identity) uri() *url.URL {
	return &url.URL{Scheme: "troupe", Host: string(i.Role), Path: "/" + i.Name}
}

// identityIn reads the identity of a certificate. It must have our URI and no other.
func identityIn(cert *x509.Certificate) (Identity, error) {
	if len(cert.URIs) != 1 {
		return Identity{}, fmt.Errorf("%w: the certificate has %d URIs; want one, troupe://ROLE/NAME", ErrIdentity, len(cert.URIs))
	}
	uri := cert.URIs[0]
	id := Identity{Name: strings.TrimPrefix(uri.Path, "/"), Role: Role(uri.Host)}
	if err := id.Check(); err != nil {
		return Identity{}, fmt.Errorf("the certificate's URI %s: %w", strictjson.Quote(uri.String()), err)
	}
	if got := uri.String(); got != id.uri().String() {
		return Identity{}, fmt.Errorf("%w: the certificate's URI is %s; want %s", ErrIdentity, strictjson.Quote(got), id.uri())
	}
	if cert.IsCA {
		return Identity{}, fmt.Errorf("%w: the certificate is an authority's", ErrIdentity)
	}
	return id, nil
}

// IdentityOf is the peer of a connection that was made with ServerTLS or ClientTLS:
// ErrNoIdentity where it gave no certificate. It has none for a connection of JoinTLS, which
// is made before there is anything to check a name with.
func IdentityOf(state tls.ConnectionState) (Identity, error) {
	// Not PeerCertificates: those are only what the peer said.
	if len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return Identity{}, ErrNoIdentity
	}
	return identityIn(state.VerifiedChains[0][0])
}

// NameIn is the name that a certificate of this process says; "": none.
func NameIn(cert tls.Certificate) string { return ownIdentity(cert).Name }

// RoleIn is its role.
func RoleIn(cert tls.Certificate) Role { return ownIdentity(cert).Role }

func ownIdentity(cert tls.Certificate) Identity {
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return Identity{}
	}
	id, _ := identityIn(leaf) // which is none with an error
	return id
}
