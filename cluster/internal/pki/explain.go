package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/troupe-ml/troupe/internal/base/clock"
)

// Explain wraps an error of a TLS connection with the compared values and the fix. It returns errors
// that are not about certificates unchanged.
func Explain(err error) error {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil {
		of := "the authority"
		if id, err := identityIn(invalid.Cert); err == nil {
			of = id.String()
		}
		return fmt.Errorf("the certificate of %s is valid from %s to %s, but this host's clock says %s; check the clocks of both hosts; a process that was away for longer has to join again with a token: %w",
			of, stamp(invalid.Cert.NotBefore), stamp(invalid.Cert.NotAfter), stamp(clock.Now()), err)
	}
	if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
		return fmt.Errorf("the peer's certificate is from another authority; check that this is the right cluster. If the coordinator has a new folder, restart this process with a token from it (--token-file): %w", err)
	}
	if remote := (*net.OpError)(nil); errors.As(err, &remote) && remote.Op == "remote error" {
		return fmt.Errorf("the peer refused this process; its log says why: %w", err)
	}
	return err
}

// Expired returns an error, with the fix, if the process's own certificate has expired.
func Expired(k *Keeper, now time.Time) error {
	cert, err := k.Get()
	if err != nil || !now.After(cert.Leaf.NotAfter) {
		return nil
	}
	return fmt.Errorf("the certificate of this process (%s) expired at %s; restart the process with a token (--token-file)",
		ownIdentity(*cert),
		stamp(cert.Leaf.NotAfter))
}
