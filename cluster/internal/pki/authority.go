package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/internal/base/clock"
)

// An Authority signs the certificates of a cluster and knows its tokens. It lives with the
// coordinator. Its methods may be called from several goroutines.
type Authority struct {
	key    crypto.Signer
	root   *x509.Certificate
	tokens *tokenStore
	issued *ledgerStore
}

// NewAuthority makes an authority that lives as long as this process.
func NewAuthority(now time.Time) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "troupe authority"},
		NotBefore:             now.Add(-ClockSkew),
		NotAfter:              now.AddDate(rootYears, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true, // it signs processes, never another authority
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making an authority: %w", err)
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making an authority: %w", err)
	}
	return &Authority{key: key, root: root, tokens: &tokenStore{}, issued: &ledgerStore{}}, nil
}

// Hash is the SHA-256 of the root certificate's DER. Tokens carry it.
func (a *Authority) Hash() [32]byte { return sha256.Sum256(a.root.Raw) }

// Root is the root certificate's DER.
func (a *Authority) Root() []byte { return append([]byte(nil), a.root.Raw...) }

// Issue makes a certificate with a new key, for this process itself.
func (a *Authority) Issue(id Identity, ttl time.Duration) (tls.Certificate, error) {
	key, err := newKey()
	if err != nil {
		return tls.Certificate{}, err
	}
	der, err := a.sign(key.Public(), id, "", ttl, clock.Now())
	if err != nil {
		return tls.Certificate{}, err
	}
	return Bind(key, der, a.root.Raw)
}

// Sign makes a certificate for who holds the key of a certificate request. Nothing but the
// public key is taken from the request: the name, the role and the times are the caller's. No token stands behind it: where
// one has to, it counts for nothing (Accepts).
func (a *Authority) Sign(csrDER []byte, id Identity, ttl time.Duration) (certDER []byte, err error) {
	return a.signRequest(csrDER, id, ttl, clock.Now())
}

// SignJoin is Join for a process that does not keep its key.
func (a *Authority) SignJoin(tokenID string, secret, csrDER []byte, name string, now time.Time) (certDER []byte, id Identity, err error) {
	return a.Join(Joining{TokenID: tokenID, Secret: secret, CSR: csrDER, Name: name}, now)
}

func (a *Authority) signRequest(csrDER []byte, id Identity, ttl time.Duration, now time.Time) ([]byte, error) {
	public, err := requestKey(csrDER)
	if err != nil {
		return nil, err
	}
	return a.sign(public, id, "", ttl, now)
}

// sign makes a certificate; token is the id of what the process has joined by, "": nothing.
func (a *Authority) sign(public crypto.PublicKey, id Identity, token string, ttl time.Duration, now time.Time) ([]byte, error) {
	template, err := a.template(id, ttl, now)
	if err != nil {
		return nil, err
	}
	template.Subject.SerialNumber = token
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate for %s: %w", id, err)
	}
	return der, nil
}

// template is a process's certificate before it is signed.
func (a *Authority) template(id Identity, ttl time.Duration, now time.Time) (*x509.Certificate, error) {
	if err := id.Check(); err != nil {
		return nil, err
	}
	if ttl < time.Second || ttl > certificateTTLMax {
		return nil, fmt.Errorf("a certificate for %s with a life of %v; want %v to %v", id, ttl, time.Second, certificateTTLMax)
	}
	if err := a.checkTime(now); err != nil {
		return nil, err
	}
	until := now.Add(ttl)
	if until.After(a.root.NotAfter) {
		until = a.root.NotAfter
	}
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: string(id.Role) + " " + id.Name}, // for people; see tokenOf for its number
		URIs:                  urls(id),
		DNSNames:              []string{serverName},
		NotBefore:             now.Add(-ClockSkew),
		NotAfter:              until,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}, nil
}

func (a *Authority) checkTime(now time.Time) error {
	if now.Before(a.root.NotBefore) || now.After(a.root.NotAfter) {
		return fmt.Errorf("the authority is valid from %s to %s and it is %s here: set this host's clock, or start a new authority in another folder, which all processes have to join again",
			stamp(a.root.NotBefore), stamp(a.root.NotAfter), stamp(now))
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	return key, nil
}

// requestKey is the public key of a certificate request, whose sender has shown that it holds
// the private one.
func requestKey(csrDER []byte) (*ecdsa.PublicKey, error) {
	if len(csrDER) > requestBytesMax {
		return nil, fmt.Errorf("a certificate request of %d bytes; the most is %d", len(csrDER), requestBytesMax)
	}
	csr, err := x509.ParseCertificateRequest(csrDER)
	if err != nil {
		return nil, fmt.Errorf("reading a certificate request of %d bytes: %w", len(csrDER), err)
	}
	public, ok := csr.PublicKey.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return nil, errors.New("a certificate request with a key that is not ECDSA P-256")
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the signature of a certificate request: %w", err)
	}
	return public, nil
}
