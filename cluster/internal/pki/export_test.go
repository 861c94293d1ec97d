package pki

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"time"
)

// IssueAt is Issue at another time, with a change to the certificate before it is signed. It
// leaves out the checks of Bind.
func (a *Authority) IssueAt(id Identity, ttl time.Duration, now time.Time, change func(*x509.Certificate)) (tls.Certificate, error) {
	key, err := newKey()
	if err != nil {
		return tls.Certificate{}, err
	}
	template, err := a.template(id, ttl, now)
	if err != nil {
		return tls.Certificate{}, err
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, key.Public(), a.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der, a.root.Raw}, PrivateKey: key}, nil
}

// DecodeTokens reads and writes tokens.json, and returns what was written.
func DecodeTokens(content []byte) ([]byte, error) {
	records, err := decodeTokens(content)
	if err != nil {
		return nil, err
	}
	s := &tokenStore{records: records}
	return encodeTokens(s.sorted())
}

const (
	TokensMax          = tokensMax
	TokensFileBytesMax = tokensFileBytesMax
	RequestBytesMax    = requestBytesMax
)
