package pki_test

import (
	"bytes"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
)

// FuzzParseToken: what is read is written the same.
func FuzzParseToken(f *testing.F) {
	f.Add(sampleToken().String())
	f.Add("troupe1.")
	f.Add("troupe2.AAAA")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := pki.ParseToken(text)
		if err != nil {
			if !errors.Is(err, pki.ErrToken) {
				t.Fatal(err)
			}
			return
		}
		if token.String() != text || token.Role.Check() != nil {
			t.Fatalf("%q is read as %q", text, token.String())
		}
	})
}

// FuzzTokensFile: what is read is written and read the same.
func FuzzTokensFile(f *testing.F) {
	f.Add([]byte(`{"version":1,"tokens":[` + oneToken + `]}`))
	f.Add([]byte(`{"version":1,"tokens":[]}`))
	for _, tt := range damagedTokens {
		f.Add([]byte(tt.content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		once, err := pki.DecodeTokens(content)
		if err != nil {
			return
		}
		if twice, err := pki.DecodeTokens(once); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s became %s (%v)", once, twice, err)
		}
	})
}

// FuzzSign: whatever the request, only a worker's certificate is signed.
func FuzzSign(f *testing.F) {
	a := newAuthority(f)
	_, csr, err := pki.NewRequest(worker)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(csr)
	f.Add(request(f, p256(f), &x509.CertificateRequest{DNSNames: []string{"example.org"}}))
	f.Add(a.Root())
	f.Fuzz(func(t *testing.T, csr []byte) {
		der, err := a.Sign(csr, worker, time.Hour)
		if err != nil {
			return
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		if len(csr) > pki.RequestBytesMax || cert.IsCA || len(cert.URIs) != 1 || cert.URIs[0].String() != "troupe://worker/troupe-worker-0" ||
			len(cert.DNSNames) != 1 {
			t.Fatalf("%+v", cert)
		}
	})
}
