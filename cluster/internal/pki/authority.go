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

// An Authority signs a cluster's certificates and keeps its tokens. The coordinator has it. Its
// methods may be called concurrently.
type Authority struct {
	key    crypto.Signer
	root   *x509.Certificate
	tokens *tokenStore
	issued *ledgerStore
}

// NewAuthority makes an authority in memory, which ends with this process.
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
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	return &Authority{key: key, root: root, tokens: &tokenStore{}, issued: &ledgerStore{}}, nil
}

// Hash returns the SHA-256 of the root certificate's DER. Tokens contain it.
func (a *Authority) Hash() [32]byte { return sha256.Sum256(a.root.Raw) }

// Root returns the root certificate's DER.
func (a *Authority) Root() []byte { return append([]byte(nil), a.root.Raw...) }

// Issue makes a certificate with a new key, for the coordinator itself. It is valid for ttl.
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

// Sign makes a certificate for the key in a certificate request. It takes only the public key from the request; the
// caller sets name, role and times. The certificate names no token, so Accepts accepts it only for a coordinator.
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

// sign makes a certificate. token is the id of the token with which the process joined; "": none.
func (a *Authority) sign(public crypto.PublicKey, id Identity, token string, ttl time.Duration, now time.Time) ([]byte, error) {
	template, err := a.template(id, ttl, now)
	if err != nil {
		return nil, err
	}
	template.Subject.SerialNumber = token
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate for %s: %w", id, err)
	}
	return der, nil
}

// template returns a process's certificate before signing.
func (a *Authority) template(id Identity, ttl time.Duration, now time.Time) (*x509.Certificate, error) {
	if err := id.Check(); err != nil {
		return nil, err
	}
	if ttl < time.Second || ttl > certificateTTLMax {
		return nil, fmt.Errorf("a certificate for %s can't be valid for %v; want %v to %v", id, ttl, time.Second, certificateTTLMax)
	}
	if err := a.checkTime(now); err != nil {
		return nil, err
	}
	until := now.Add(ttl)
	if until.After(a.root.NotAfter) {
		until = a.root.NotAfter
	}
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: string(id.Role) + " " + id.Name}, // for human readers; tokenOf explains the serial number
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
		return fmt.Errorf("the authority is valid from %s to %s, but this host's clock says %s; set the clock, or start a new authority in another folder, which all processes have to join again",
			stamp(a.root.NotBefore), stamp(a.root.NotAfter), stamp(now))
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

// requestKey returns the public key of a certificate request. It checks that the sender holds the
// private key.
func requestKey(csrDER []byte) (*ecdsa.PublicKey, error) {
	if len(csrDER) > requestBytesMax {
		return nil, fmt.Errorf("the certificate request has %d bytes; the limit is %d", len(csrDER), requestBytesMax)
	}
	csr, err := x509.ParseCertificateRequest(csrDER)
	if err != nil {
		return nil, fmt.Errorf("parse a certificate request of %d bytes: %w", len(csrDER), err)
	}
	public, ok := csr.PublicKey.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return nil, errors.New("the certificate request's key is not ECDSA P-256")
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("check the signature of the certificate request: %w", err)
	}
	return public, nil
}
