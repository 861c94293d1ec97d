package pki_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
)

// TestConnect: two processes with certificates can connect.
func TestConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := newAuthority(t), newAuthority(t)
		hour := time.Hour
		uris := func(texts ...string) func(*x509.Certificate) {
			return func(c *x509.Certificate) {
				c.URIs = nil
				for _, text := range texts {
					u, err := url.Parse(text)
					if err != nil {
						t.Fatal(err)
					}
					c.URIs = append(c.URIs, u)
				}
			}
		}
		good := issue(t, ours, worker)
		for _, tt := range []struct {
			name string
			cert tls.Certificate
			want string // part of the error; "" is none
		}{
			{"a worker", good, ""},
			{"a foreign authority, same names", issue(t, theirs, worker), "unknown authority"},
			{"expired", issueAt(t, ours, worker, time.Now().Add(-2*hour), nil), "current time 2000-01-01T00:00:00Z is after 1999-12-31T23:00:00Z"},
			{"not yet valid", issueAt(t, ours, worker, time.Now().Add(2*hour), nil),
				"current time 2000-01-01T00:00:00Z is before 2000-01-01T01:55:00Z"},
			{"a clock that is 4 minutes ahead", issueAt(t, ours, worker, time.Now().Add(4*time.Minute), nil), ""},
			{"no URI", issueAt(t, ours, worker, time.Now(), uris()), "has 0 URIs"},
			{"two URIs", issueAt(t, ours, worker, time.Now(), uris("troupe://worker/a", "troupe://coordinator/b")), "has 2 URIs"},
			{"a foreign URI", issueAt(t, ours, worker, time.Now(), uris("spiffe://worker/a")), "spiffe"},
			{"an unknown role", issueAt(t, ours, worker, time.Now(), uris("troupe://king/a")), "king"},
			{"no name", issueAt(t, ours, worker, time.Now(), uris("troupe://worker")), "0 bytes"},
			{"a path", issueAt(t, ours, worker, time.Now(), uris("troupe://worker/a/b")), "a/b"},
			{"two slashes", issueAt(t, ours, worker, time.Now(), uris("troupe://worker//a")), "/a"},
			{"a query", issueAt(t, ours, worker, time.Now(), uris("troupe://worker/a?role=coordinator")), "role=coordinator"},
			{"a fragment", issueAt(t, ours, worker, time.Now(), uris("troupe://worker/a#b")), "#b"},
			{"a user", issueAt(t, ours, worker, time.Now(), uris("troupe://root@worker/a")), "root@"},
			{"a port", issueAt(t, ours, worker, time.Now(), uris("troupe://worker:1/a")), "worker:1"},
			{"an escaped name", issueAt(t, ours, worker, time.Now(), uris("troupe://worker/%61")), "%61"},
			{"an authority's", issueAt(t, ours, worker, time.Now(), func(c *x509.Certificate) { c.IsCA = true }), ""}, // see below
			{"the chain of another", tls.Certificate{Certificate: good.Certificate, PrivateKey: issue(t, ours, viewer).PrivateKey}, "private key"},
		} {
			for _, side := range []string{"client", "server"} {
				peer := always(issue(t, ours, coordinator))
				server, client := pki.ServerTLS(ours.Root(), peer), pki.ClientTLS(ours.Root(), always(tt.cert), pki.Coordinator)
				if side == "server" {
					server, client = pki.ServerTLS(ours.Root(), always(tt.cert)), pki.ClientTLS(ours.Root(), peer, pki.Worker)
				}
				m := meet(server, client)
				refusing, state := m.serverErr, m.server
				if side == "server" {
					refusing, state = m.clientErr, m.client
				}
				if tt.name == "an authority's" {
					tt.want = "certificate" // refused, by the standard library or by us
				}
				if tt.name == "the chain of another" {
					refusing = m.err()
					tt.want = "signature"
				}
				if tt.want == "" {
					id, err := pki.IdentityOf(state)
					if m.err() != nil || err != nil || id != worker {
						t.Errorf("%s as %s: %v, %v, %v", tt.name, side, m.err(), id, err)
					}
					continue
				}
				if refusing == nil || !strings.Contains(refusing.Error(), tt.want) {
					t.Errorf("%s as %s: %v, want %q", tt.name, side, refusing, tt.want)
				}
				if m.clientErr == nil && m.serverErr == nil || m.got != "" {
					t.Errorf("%s as %s: the connection stood (%q)", tt.name, side, m.got)
				}
			}
		}
	})
}

// TestRoles: a client accepts only servers with the roles that it names.
func TestRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		for _, tt := range []struct {
			server  pki.Role
			want    []pki.Role
			refused bool
		}{
			{pki.Coordinator, []pki.Role{pki.Coordinator}, false},
			{pki.Worker, []pki.Role{pki.Coordinator}, true},
			{pki.Worker, []pki.Role{pki.Coordinator, pki.Worker}, false},
			{pki.Viewer, []pki.Role{pki.Coordinator, pki.Worker}, true},
			{pki.Coordinator, nil, false},
			{pki.Worker, nil, false},
			{pki.Operator, nil, true},
			{pki.Viewer, nil, true},
		} {
			id := pki.Identity{Name: "a", Role: tt.server}
			m := meet(pki.ServerTLS(a.Root(), always(issue(t, a, id))), pki.ClientTLS(a.Root(), always(issue(t, a, worker)), tt.want...))
			if got := errors.Is(m.clientErr, pki.ErrRole); got != tt.refused || !tt.refused && m.err() != nil {
				t.Errorf("%s where %v is wanted: %v", tt.server, tt.want, m.err())
			}
		}
	})
}

// TestNoClientCertificate: the handshake succeeds without a client certificate, for processes that join, and gives no identity.
func TestNoClientCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		m := meet(pki.ServerTLS(a.Root(), always(issue(t, a, coordinator))), pki.ClientTLS(a.Root(), nil))
		if m.err() != nil {
			t.Fatal(m.err())
		}
		if id, err := pki.IdentityOf(m.server); !errors.Is(err, pki.ErrNoIdentity) {
			t.Errorf("the server took the client for %v (%v)", id, err)
		}
		if _, err := pki.RootOf(m.server); !errors.Is(err, pki.ErrNoIdentity) {
			t.Errorf("RootOf: %v", err)
		}
		if root, err := pki.RootOf(m.client); err != nil || !bytes.Equal(root, a.Root()) {
			t.Errorf("RootOf: %x, %v", root, err)
		}
		if got := m.client.Version; got != tls.VersionTLS13 {
			t.Errorf("version %x", got)
		}
	})
}

// TestOlderTLS: versions below 1.3 are refused.
func TestOlderTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		old := pki.ClientTLS(a.Root(), nil)
		old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		if m := meet(pki.ServerTLS(a.Root(), always(issue(t, a, coordinator))), old); m.serverErr == nil {
			t.Error("TLS 1.2 was accepted")
		}
	})
}

// TestNoResumption: a second connection is checked in full, even if the client wants to resume.
func TestNoResumption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		server := pki.ServerTLS(a.Root(), always(issue(t, a, coordinator)))
		client := pki.ClientTLS(a.Root(), always(issue(t, a, worker)))
		client.SessionTicketsDisabled = false
		client.ClientSessionCache = tls.NewLRUClientSessionCache(4)
		for range 3 {
			m := meet(server, client)
			if m.err() != nil || m.server.DidResume || m.client.DidResume {
				t.Fatalf("%v, resumed %v", m.err(), m.server.DidResume)
			}
			if id, err := pki.IdentityOf(m.server); err != nil || id != worker {
				t.Fatal(id, err)
			}
		}
	})
}

// TestBadRoot: without a root certificate a process trusts no certificate, not even one from the system's authorities.
func TestBadRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		cert := issue(t, a, coordinator)
		for _, root := range [][]byte{nil, {}, []byte("nonsense"), cert.Certificate[0], make([]byte, 1<<20)} {
			if m := meet(pki.ServerTLS(a.Root(), always(cert)), pki.ClientTLS(root, always(cert))); m.clientErr == nil {
				t.Errorf("a client with a root of %d bytes connected", len(root))
			}
			for _, with := range []func() (*tls.Certificate, error){nil, always(cert)} {
				if m := meet(pki.ServerTLS(root, always(cert)), pki.ClientTLS(a.Root(), with)); m.serverErr == nil {
					t.Errorf("a server with a root of %d bytes served", len(root))
				}
			}
		}
	})
}

// TestJoin: a process can join with only a token, and impostors don't get its secret.
func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := newAuthority(t), newAuthority(t)
		good := issue(t, ours, coordinator)
		foreign := issue(t, theirs, coordinator)
		with := func(cert tls.Certificate, chain ...[]byte) tls.Certificate {
			cert.Certificate = chain
			return cert
		}
		for _, tt := range []struct {
			name string
			cert tls.Certificate
			want string
		}{
			{"the coordinator", good, ""},
			{"a foreign authority, same names", foreign, "its authority is"},
			{"a foreign certificate with our root", with(foreign, foreign.Certificate[0], ours.Root()), "unknown authority"},
			{"a foreign certificate with both roots", with(foreign, foreign.Certificate[0], theirs.Root(), ours.Root()), "sent 3 certificates"},
			{"both roots the other way", with(foreign, foreign.Certificate[0], ours.Root(), theirs.Root()), "sent 3 certificates"},
			{"no root", with(good, good.Certificate[0]), "sent 1 certificates"},
			{"the root alone", with(foreign, ours.Root()), ""},
			{"our certificate, another key", with(foreign, good.Certificate...), ""},
			{"a worker of ours", issue(t, ours, worker), "worker troupe-worker-0; want [coordinator]"},
			{"a viewer of ours", issue(t, ours, viewer), "viewer eve; want [coordinator]"},
			{"expired", issueAt(t, ours, coordinator, time.Now().Add(-2*time.Hour), nil),
				"current time 2000-01-01T00:00:00Z is after 1999-12-31T23:00:00Z"},
			{"not yet valid", issueAt(t, ours, coordinator, time.Now().Add(2*time.Hour), nil), "is before"},
			{"for clients alone", issueAt(t, ours, coordinator, time.Now(), func(c *x509.Certificate) {
				c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
			}), "key usage"},
			{"without a URI", issueAt(t, ours, coordinator, time.Now(), func(c *x509.Certificate) { c.URIs = nil }), "has 0 URIs"},
			{"for another name", issueAt(t, ours, coordinator, time.Now(), func(c *x509.Certificate) { c.DNSNames = []string{"example.org"} }),
				"troupe"},
		} {
			m := meet(pki.ServerTLS(ours.Root(), always(tt.cert)), pki.JoinTLS(newToken(t, ours, pki.Worker)))
			if tt.name == "the coordinator" {
				root, err := pki.RootOf(m.client)
				if m.err() != nil || err != nil || sha256.Sum256(root) != ours.Hash() {
					t.Errorf("%s: %v, %x, %v", tt.name, m.err(), root, err)
				}
				if id, err := pki.IdentityOf(m.client); !errors.Is(err, pki.ErrNoIdentity) {
					t.Errorf("an unverified chain gave the identity %v (%v)", id, err)
				}
				continue
			}
			if m.clientErr == nil || !strings.Contains(m.clientErr.Error(), tt.want) || m.got != "" || m.client.HandshakeComplete {
				t.Errorf("%s: %v, want %q; the server read %q", tt.name, m.clientErr, tt.want, m.got)
			}
			if tt.want != "" && !errors.Is(m.clientErr, pki.ErrImpostor) {
				t.Errorf("%s: %v is not ErrImpostor", tt.name, m.clientErr)
			}
		}
	})
}

// TestJoinWhole takes all steps of a worker: token, request, certificate, connection.
func TestJoinWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		server := pki.ServerTLS(a.Root(), always(issue(t, a, coordinator)))
		token := newToken(t, a, pki.Worker)
		m := meet(server, pki.JoinTLS(token))
		root, err := pki.RootOf(m.client)
		if err := errors.Join(m.err(), err); err != nil {
			t.Fatal(err)
		}
		// The role and name that the request has don't matter.
		key, csr, err := pki.NewRequest(pki.Identity{Name: "boss", Role: pki.Coordinator})
		if err != nil {
			t.Fatal(err)
		}
		der, id, err := a.SignJoin(token.ID, token.Secret[:], csr, "troupe-worker-0", time.Now())
		if err != nil || id != worker {
			t.Fatal(id, err)
		}
		cert, err := pki.Bind(key, der, root)
		if err != nil {
			t.Fatal(err)
		}
		if life := time.Until(cert.Leaf.NotAfter); life != pki.CertificateTTL {
			t.Errorf("a life of %v", life)
		}
		m = meet(server, pki.ClientTLS(root, always(cert), pki.Coordinator))
		if m.err() != nil {
			t.Fatal(m.err())
		}
		if id, err := pki.IdentityOf(m.server); err != nil || id != worker {
			t.Errorf("%v, %v", id, err)
		}
		if id, err := pki.IdentityOf(m.client); err != nil || id != coordinator {
			t.Errorf("%v, %v", id, err)
		}
		time.Sleep(pki.CertificateTTL + time.Second)
		m = meet(server, pki.ClientTLS(root, always(cert), pki.Coordinator))
		if m.err() == nil {
			t.Error("an expired certificate was accepted")
		}
	})
}

// TestExplain: errors about certificates name the times and what to do.
func TestExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := newAuthority(t), newAuthority(t)
		good := always(issue(t, ours, worker))
		for _, tt := range []struct {
			name string
			cert tls.Certificate
			want []string
		}{
			{"expired", issueAt(t, ours, coordinator, time.Now().Add(-2*time.Hour), nil),
				[]string{"of coordinator head is valid from 1999-12-31T21:55:00Z to 1999-12-31T23:00:00Z, but this host's clock says 2000-01-01T00:00:00Z",
					"check the clocks"}},
			{"foreign", issue(t, theirs, coordinator), []string{"another authority", "right cluster"}},
		} {
			m := meet(pki.ServerTLS(ours.Root(), always(tt.cert)), pki.ClientTLS(ours.Root(), good))
			err := pki.Explain(m.clientErr)
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", tt.name, err, want)
				}
			}
			if !errors.Is(err, m.clientErr) {
				t.Errorf("%s: the cause is lost", tt.name)
			}
		}
		m := meet(pki.ServerTLS(ours.Root(), good), pki.ClientTLS(ours.Root(), always(issue(t, theirs, worker))))
		if err := pki.Explain(m.clientErr); err == nil || !strings.Contains(err.Error(), "its log says why") {
			t.Errorf("refused by the peer: %v", err)
		}
		plain := errors.New("plain")
		if pki.Explain(plain).Error() != plain.Error() || pki.Explain(nil) != nil {
			t.Error("other errors don't stay as they are")
		}
	})
}

func TestIdentityCheck(t *testing.T) {
	long := strings.Repeat("a", 64)
	for name, good := range map[string]bool{
		"a": true, "troupe-worker-0": true, "n1.example.org": true, "0": true, long[1:]: true, "a--b": true,
		"": false, long: false, "A": false, "a_b": false, "-a": false, "a-": false, ".a": false, "a.": false,
		"a..b": false, "a.-b": false, "a-.b": false, "a/b": false, "ä": false, "a b": false, "a\n": false, "a\x00": false, "*": false,
	} {
		for _, role := range []pki.Role{pki.Coordinator, pki.Worker, pki.Operator, pki.Viewer} {
			if err := (pki.Identity{Name: name, Role: role}).Check(); (err == nil) != good || err != nil && !errors.Is(err, pki.ErrIdentity) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
	for _, role := range []pki.Role{"", "Worker", "root", pki.Role(long)} {
		if err := (pki.Identity{Name: "a", Role: role}).Check(); !errors.Is(err, pki.ErrIdentity) {
			t.Errorf("%q: %v", role, err)
		}
	}
}

// TestServerSendsRoot: a server sends its root certificate, which a joining process needs.
func TestServerSendsRoot(t *testing.T) {
	a := newAuthority(t)
	cert, err := a.Issue(coordinator, time.Hour)
	if err != nil || len(cert.Certificate) != 2 || !slices.Equal(cert.Certificate[1], a.Root()) {
		t.Fatal(len(cert.Certificate), err)
	}
	if cert.Leaf == nil || cert.Leaf.Subject.CommonName != "coordinator head" || cert.Leaf.URIs[0].String() != "troupe://coordinator/head" {
		t.Errorf("%v", cert.Leaf)
	}
}

// TestConnectTo: a client that dials a named process refuses another one with the same role.
func TestConnectTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		other := pki.Identity{Name: "other", Role: worker.Role}
		for _, c := range []struct {
			name string
			is   pki.Identity
			ok   bool
		}{{worker.Name, worker, true}, {"", other, true}, {worker.Name, other, false}, {coordinator.Name, worker, false}} {
			m := meet(pki.ServerTLS(a.Root(), always(issue(t, a, c.is))), pki.ClientTLSTo(c.name, a.Root(), always(issue(t, a, coordinator)),
				pki.Worker))
			if (m.clientErr == nil) != c.ok || !c.ok && !errors.Is(m.clientErr, pki.ErrName) {
				t.Errorf("%q finds %v: %v", c.name, c.is, m.clientErr)
			}
		}
	})
}
