package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/troupe-ml/troupe/internal/base/clock"
)

// Explain adds to an error of a TLS connection what was compared and what to do. The error
// stays the cause; one that has nothing to do with certificates is returned as it is.
func Explain(err error) error {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil {
		of := "the authority"
		if id, err := identityIn(invalid.Cert); err == nil {
			of = id.String()
		}
		return fmt.Errorf("the certificate of %s is valid from %s to %s and it is %s here: check the clocks of both hosts; a process that was away for longer joins again with a token: %w",
			of, stamp(invalid.Cert.NotBefore), stamp(invalid.Cert.NotAfter), stamp(clock.Now()), err)
	}
	if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
		return fmt.Errorf("the peer's certificate is from another authority: is this the right cluster? Where the coordinator's folder was made again, start this process again with a token of the new one (--token-file): %w", err)
	}
	if remote := (*net.OpError)(nil); errors.As(err, &remote) && remote.Op == "remote error" {
		return fmt.Errorf("the peer refused this process; its log says why: %w", err)
	}
	return err
}

// Expired says that a process's own certificate is no longer valid, and what to do; nil: it is valid.
func Expired(k *Keeper, now time.Time) error {
	cert, err := k.Get()
	if err != nil || !now.After(cert.Leaf.NotAfter) {
		return nil
	}
	return fmt.Errorf("the certificate of this process, %s, has expired on %s: start it again with a token (--token-file)", ownIdentity(*cert),
		stamp(cert.Leaf.NotAfter))
}
