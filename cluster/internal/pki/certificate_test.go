package pki_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
)

func issueKey(cert tls.Certificate) crypto.Signer { return cert.PrivateKey.(crypto.Signer) }

func request(t testing.TB, key crypto.Signer, template *x509.CertificateRequest) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func p256(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestSign(t *testing.T) {
	a := newAuthority(t)
	key, csr, err := pki.NewRequest(worker)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	forged := bytes.Clone(csr)
	forged[len(forged)-1] ^= 1
	names := make([]string, 1000)
	for i := range names {
		names[i] = "a.example"
	}
	for _, tt := range []struct {
		name string
		csr  []byte
		id   pki.Identity
		ttl  time.Duration
		want string
	}{
		{"good", csr, worker, time.Hour, ""},
		{"the shortest life", csr, worker, time.Second, ""},
		{"no life", csr, worker, 0, "can't be valid for"},
		{"a negative life", csr, worker, -time.Hour, "can't be valid for"},
		{"a long life", csr, worker, 365 * 24 * time.Hour, "can't be valid for"},
		{"a bad name", csr, pki.Identity{Name: "A", Role: pki.Worker}, time.Hour, "name"},
		{"a bad role", csr, pki.Identity{Name: "a", Role: "x"}, time.Hour, "role"},
		{"no request", nil, worker, time.Hour, "0 bytes"},
		{"nonsense", []byte("nonsense"), worker, time.Hour, "8 bytes"},
		{"a certificate", a.Root(), worker, time.Hour, "request"},
		{"cut", csr[:len(csr)-1], worker, time.Hour, "request"},
		{"longer", append(bytes.Clone(csr), 0), worker, time.Hour, "request"},
		{"not signed by its key", forged, worker, time.Hour, "signature"},
		{"too large", request(t, p256(t), &x509.CertificateRequest{DNSNames: names}), worker, time.Hour, "the limit is 4096"},
		{"P-384", request(t, p384, &x509.CertificateRequest{}), worker, time.Hour, "P-256"},
		{"Ed25519", request(t, ed, &x509.CertificateRequest{}), worker, time.Hour, "P-256"},
		{"RSA", request(t, rsaKey, &x509.CertificateRequest{}), worker, time.Hour, "P-256"},
	} {
		der, err := a.Sign(tt.csr, tt.id, tt.ttl)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			} else if _, err := pki.Bind(key, der, a.Root()); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestSignTakesTheKeyAlone: whatever a request contains, only its key gets into the certificate.
func TestSignTakesTheKeyAlone(t *testing.T) {
	a := newAuthority(t)
	csr := request(t, p256(t), &x509.CertificateRequest{
		DNSNames:       []string{"example.org"},
		EmailAddresses: []string{"a@example.org"},
		// Basic constraints: CA is true.
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 3, 1, 1, 0xff}}},
	})
	der, err := a.Sign(csr, worker, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	if cert.IsCA || len(cert.DNSNames) != 1 || cert.DNSNames[0] != "troupe" || len(cert.EmailAddresses) != 0 || len(cert.URIs) != 1 ||
		cert.URIs[0].String() != "troupe://worker/troupe-worker-0" {
		t.Errorf("%+v", cert)
	}
}

// TestCertificateEndsWithAuthority: no certificate outlives its authority.
func TestCertificateEndsWithAuthority(t *testing.T) {
	a := newAuthority(t)
	root, err := x509.ParseCertificate(a.Root())
	if err != nil {
		t.Fatal(err)
	}
	cert, err := a.IssueAt(worker, time.Hour, root.NotAfter.Add(-time.Minute), nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil || !leaf.NotAfter.Equal(root.NotAfter) {
		t.Errorf("%v, want %v (%v)", leaf.NotAfter, root.NotAfter, err)
	}
	if _, err := a.IssueAt(worker, time.Hour, root.NotAfter.Add(time.Second), nil); err == nil {
		t.Error("it signs after its end")
	}
}

func TestSignJoinRefuses(t *testing.T) {
	a := newAuthority(t)
	token := newToken(t, a, pki.Viewer)
	_, csr, err := pki.NewRequest(viewer)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		id     string
		secret []byte
		csr    []byte
		as     string
		now    time.Time
		want   error // nil: any
	}{
		{"wrong secret", token.ID, make([]byte, 32), csr, "eve", time.Now(), pki.ErrTokenUnknown},
		{"expired", token.ID, token.Secret[:], csr, "eve", time.Now().Add(2 * time.Hour), pki.ErrTokenExpired},
		{"a bad name", token.ID, token.Secret[:], csr, "troupe://coordinator/x", time.Now(), pki.ErrIdentity},
		{"no name", token.ID, token.Secret[:], csr, "", time.Now(), pki.ErrIdentity},
		{"a bad request", token.ID, token.Secret[:], csr[1:], "eve", time.Now(), nil},
	} {
		der, id, err := a.SignJoin(tt.id, tt.secret, tt.csr, tt.as, tt.now)
		if err == nil || !errors.Is(err, tt.want) && tt.want != nil || der != nil || id != (pki.Identity{}) {
			t.Errorf("%s: %v, %v", tt.name, id, err)
		}
	}
}

func TestBind(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	cert := issue(t, a, worker)
	key := issueKey(cert)
	for _, tt := range []struct {
		name       string
		key        crypto.Signer
		cert, root []byte
	}{
		{"no key", nil, cert.Certificate[0], a.Root()},
		{"another key", p256(t), cert.Certificate[0], a.Root()},
		{"no certificate", key, nil, a.Root()},
		{"no root", key, cert.Certificate[0], nil},
		{"a foreign root", key, cert.Certificate[0], other.Root()},
		{"no authority's", key, cert.Certificate[0], cert.Certificate[0]},
		{"the root twice", key, a.Root(), a.Root()},
		{"a huge certificate", key, make([]byte, 1<<20), a.Root()},
		{"no identity", key, issueAt(t, a, worker, time.Now(), func(c *x509.Certificate) { c.URIs = nil }).Certificate[0], a.Root()},
	} {
		if _, err := pki.Bind(tt.key, tt.cert, tt.root); err == nil {
			t.Errorf("%s was bound", tt.name)
		}
	}
	if got, err := pki.Bind(key, cert.Certificate[0], a.Root()); err != nil || got.Leaf == nil {
		t.Error(err)
	}
}

func TestCertificateFile(t *testing.T) {
	a := newAuthority(t)
	path := filepath.Join(t.TempDir(), "worker.pem")
	cert := issue(t, a, worker)
	if err := pki.WriteCertificateFile(path, cert); err != nil {
		t.Fatal(err)
	}
	got, root, err := pki.ReadCertificateFile(path)
	if err != nil || !bytes.Equal(root, a.Root()) || !bytes.Equal(got.Certificate[0], cert.Certificate[0]) || got.Leaf == nil {
		t.Fatal(err)
	}
	content := read(t, path)
	for i := 0; i < len(content)-1; i += 5 {
		write(t, path, content[:i], 0o600)
		if _, _, err := pki.ReadCertificateFile(path); !errors.Is(err, pki.ErrDamaged) || !strings.Contains(err.Error(), "join again") {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	if _, _, err := pki.ReadCertificateFile(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := pki.WriteCertificateFile(path, tls.Certificate{}); err == nil {
		t.Error("no certificate was written")
	}
}

func TestCertificateFileModes(t *testing.T) {
	needModes(t)
	path := filepath.Join(t.TempDir(), "worker.pem")
	if err := pki.WriteCertificateFile(path, issue(t, newAuthority(t), worker)); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("written with %v, %v", info.Mode(), err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, _, err := pki.ReadCertificateFile(path); !errors.Is(err, pki.ErrExposed) {
		t.Error(err)
	}
}
