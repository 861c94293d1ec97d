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

// ReadCertificateFile reads what WriteCertificateFile has written: a process's certificate,
// and the root that it was signed by. Whether it has expired is not checked.
func ReadCertificateFile(path string) (cert tls.Certificate, rootDER []byte, err error) {
	content, err := readPrivate(path, keyFileBytesMax, ours)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("reading a certificate: %w", err)
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

// WriteCertificateFile keeps a process's key, certificate and root in a file that nobody else
// may read, so that the process need not join again when it is started again.
func WriteCertificateFile(path string, cert tls.Certificate) error {
	key, ok := cert.PrivateKey.(crypto.Signer)
	if !ok {
		return fmt.Errorf("writing %s: the certificate has no private key", path)
	}
	content, err := encodeKey(key, cert.Certificate...)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
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

// decodeKey reads a private key and the certificates behind it, and nothing else.
func decodeKey(content []byte) (*ecdsa.PrivateKey, [][]byte, error) {
	block, rest := pem.Decode(content)
	if block == nil || block.Type != pemKey {
		return nil, nil, fmt.Errorf("it does not begin with a %s in PEM", pemKey)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("its private key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, errors.New("its private key is not an ECDSA key")
	}
	var certs [][]byte
	for len(bytes.TrimSpace(rest)) > 0 {
		if block, rest = pem.Decode(rest); block == nil || block.Type != pemCert {
			return nil, nil, errors.New("it has something behind its key that is no certificate in PEM")
		}
		if len(block.Bytes) > certificateBytesMax {
			return nil, nil, fmt.Errorf("a certificate of %d bytes; the most is %d", len(block.Bytes), certificateBytesMax)
		}
		certs = append(certs, block.Bytes)
	}
	// What of it nothing reads, such as the public key beside the private one, may be damaged too.
	if again, err := encodeKey(key, certs...); err != nil || !bytes.Equal(again, content) {
		return nil, nil, errors.Join(err, errors.New("it is not as this program writes it"))
	}
	return key, certs, nil
}
