package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
)

// NewRequest makes a key and a certificate request. The identity in the request is for human readers;
// the signer decides about it.
func NewRequest(id Identity) (key crypto.Signer, csrDER []byte, err error) {
	if err := id.Check(); err != nil {
		return nil, nil, err
	}
	private, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	csrDER, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: string(id.Role) + " " + id.Name},
		URIs:    urls(id),
	}, private)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate request for %s: %w", id, err)
	}
	return private, csrDER, nil
}

// Bind combines a key, the certificate signed for it, and the root. It checks that they belong
// together and that the certificate has an identity. It does not check the time.
func Bind(key crypto.Signer, certDER, rootDER []byte) (tls.Certificate, error) {
	if key == nil {
		return tls.Certificate{}, errors.New("the certificate has no private key")
	}
	leaf, err := parseCertificate(certDER)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("parse the certificate: %w", err)
	}
	root, err := parseCertificate(rootDER)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("parse the root certificate: %w", err)
	}
	if _, err := identityIn(leaf); err != nil {
		return tls.Certificate{}, err
	}
	if err := leaf.CheckSignatureFrom(root); err != nil {
		return tls.Certificate{}, fmt.Errorf("the certificate is not signed by the root certificate next to it: %w", err)
	}
	if !isKeyOf(key, leaf) {
		return tls.Certificate{}, errors.New("the certificate is for another private key")
	}
	return tls.Certificate{
		// The root is sent too, because a joining process has only its hash.
		Certificate: [][]byte{leaf.Raw, root.Raw},
		PrivateKey:  key,
		Leaf:        leaf,
	}, nil
}

func isKeyOf(key crypto.Signer, cert *x509.Certificate) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(cert.PublicKey)
}

func parseCertificate(der []byte) (*x509.Certificate, error) {
	if len(der) > certificateBytesMax {
		return nil, fmt.Errorf("it has %d bytes; the limit is %d", len(der), certificateBytesMax)
	}
	return x509.ParseCertificate(der)
}

func urls(id Identity) []*url.URL { return []*url.URL{id.uri()} }
