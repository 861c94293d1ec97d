package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

const (
	pemKey  = "PRIVATE KEY"
	pemCert = "CERTIFICATE"
)

// ReadCertificateFile reads a file from WriteCertificateFile: a process's certificate, and the root
// that signed it. It does not check whether the certificate has expired.
func ReadCertificateFile(path string) (cert tls.Certificate, rootDER []byte, err error) {
	content, err := readPrivate(path, keyFileBytesMax, ours)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("read the certificate file: %w", err)
	}
	key, certs, err := decodeKey(content)
	if err == nil && len(certs) != 2 {
		err = fmt.Errorf("it has %d certificates; want the process's and the authority's", len(certs))
	}
	if err == nil {
		cert, err = Bind(key, certs[0], certs[1])
	}
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("%s is %w: %w; remove it and join again", path, ErrDamaged, err)
	}
	return cert, certs[1], nil
}

// WriteCertificateFile writes a process's key, certificate and root to a file that only this user may
// read, so that the process need not join again after a restart.
func WriteCertificateFile(path string, cert tls.Certificate) error {
	key, ok := cert.PrivateKey.(crypto.Signer)
	if !ok {
		return fmt.Errorf("write %s: the certificate has no private key", path)
	}
	content, err := encodeKey(key, cert.Certificate...)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return writePrivate(path, content)
}

func encodeKey(key crypto.Signer, certs ...[]byte) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = pem.Encode(&b, &pem.Block{Type: pemKey, Bytes: der})
	for _, cert := range certs {
		err = errors.Join(err, pem.Encode(&b, &pem.Block{Type: pemCert, Bytes: cert}))
	}
	return b.Bytes(), err
}

// decodeKey parses a private key and the certificates after it. It refuses anything else.
func decodeKey(content []byte) (*ecdsa.PrivateKey, [][]byte, error) {
	block, rest := pem.Decode(content)
	if block == nil || block.Type != pemKey {
		return nil, nil, fmt.Errorf("it does not begin with a %s in PEM", pemKey)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("parse its private key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, errors.New("its private key is not an ECDSA key")
	}
	var certs [][]byte
	for len(bytes.TrimSpace(rest)) > 0 {
		if block, rest = pem.Decode(rest); block == nil || block.Type != pemCert {
			return nil, nil, errors.New("after its key it has something that is not a certificate in PEM")
		}
		if len(block.Bytes) > certificateBytesMax {
			return nil, nil, fmt.Errorf("a certificate in it has %d bytes; the limit is %d", len(block.Bytes), certificateBytesMax)
		}
		certs = append(certs, block.Bytes)
	}
	// Unused parts, such as the public key next to the private one, may be damaged too.
	if again, err := encodeKey(key, certs...); err != nil || !bytes.Equal(again, content) {
		return nil, nil, errors.Join(err, errors.New("it is not in the form that this program writes"))
	}
	return key, certs, nil
}
