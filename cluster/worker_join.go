package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/base/clock"
)

// Tries of a worker whose name belongs to another worker that may have failed. The coordinator knows at the latest after
// its silence.
const (
	retryEvery = time.Second
	retryTime  = 15 * time.Second
	// limitNames is how many names a worker tries if it was given none.
	limitNames = 64
)

// retries counts the time of the tries for one reason.
type retries struct{ began time.Time }

// next waits for the next try; false: there is no more.
func (r *retries) next(ctx context.Context) bool {
	if r.began.IsZero() {
		r.began = time.Now()
	}
	if time.Since(r.began) >= retryTime {
		return false
	}
	select {
	case <-time.After(retryEvery):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// joinAs gets a certificate with the worker's name. If another worker has the name and the user did not choose it, the
// worker appends the next free number.
func (w *worker) joinAs(ctx context.Context) (cert tls.Certificate, err error) {
	base, number := w.cfg.Name, 1
	var again retries
	for {
		err = w.reach(ctx, func() (err error) {
			cert, w.root, err = join(ctx, w.at, w.cfg.Token, w.cfg.Name, w.cfg.CertFile != "")
			return err
		})
		switch {
		case errors.Is(err, errNameLater) && again.next(ctx):
			w.log.Warn("another worker, which may have failed, has this name; trying again", "name", w.cfg.Name, "err", err)
		case errors.Is(err, ErrNameHeld) && ctx.Err() == nil && w.unnamed && number < limitNames:
			number++
			again = retries{}
			w.log.Warn("another worker has this name; trying the next name", "name", w.cfg.Name, "err", err)
			w.call(fmt.Sprintf("%s-%d", base, number))
		default:
			return cert, err
		}
	}
}

// join gets the worker's certificate.
func (w *worker) join(ctx context.Context) error {
	var cert tls.Certificate
	var err error
	if w.cfg.CertFile != "" {
		cert, w.root, err = pki.ReadCertificateFile(w.cfg.CertFile)
	}
	if err == nil && w.cfg.CertFile != "" {
		if err := checkRole("certificate in "+w.cfg.CertFile, pki.RoleIn(cert), RoleWorker); err != nil {
			return err
		}
	}
	if err == nil && w.cfg.CertFile != "" && w.unnamed {
		if name := pki.NameIn(cert); name != "" { // it may have a number
			w.call(name)
		}
	}
	if err == nil && w.cfg.CertFile != "" && w.cfg.Token.ID != "" {
		if why := outlived(cert, w.root, w.cfg.Token, clock.Now()); why != "" {
			w.log.Warn("the certificate can't be used any more; the worker joins again", "file", w.cfg.CertFile, "why", why)
			err = os.ErrNotExist
		}
	}
	if w.cfg.CertFile == "" || errors.Is(err, os.ErrNotExist) {
		if w.cfg.Token.ID == "" {
			return fmt.Errorf("joining needs a join token (--token-file): %w", cmp.Or(err, errors.New("this worker has no certificate yet")))
		}
		if err := checkRole("token", w.cfg.Token.Role, RoleWorker); err != nil {
			return err
		}
		cert, err = w.joinAs(ctx)
		if err != nil {
			return fmt.Errorf("join the cluster at %s: %w", w.cfg.Join, err)
		}
		if w.cfg.CertFile != "" {
			err = pki.WriteCertificateFile(w.cfg.CertFile, cert)
		}
	}
	if err != nil {
		return err
	}
	w.keeper = pki.NewKeeper(cert, w.renew, w.log)
	if w.cfg.CertFile != "" {
		w.keeper.OnRenewed(func(cert tls.Certificate) error { return pki.WriteCertificateFile(w.cfg.CertFile, cert) })
	}
	return nil
}

// renew gets a new certificate for this worker's identity from the coordinator.
func (w *worker) renew(ctx context.Context, csr []byte) ([]byte, error) {
	return renew(ctx, w.at, w.root, w.keeper, csr)
}

// dialCoordinator opens a stream to the coordinator at its current address.
func (w *worker) dialCoordinator(ctx context.Context, protocol string) (net.Conn, error) {
	return dialCoordinator(ctx, w.at, w.root, w.keeper, protocol)
}

// final reports whether an error of dialing the coordinator means that it will never accept this process again.
func final(err error) bool {
	return errors.Is(err, transport.ErrRevoked) || errors.Is(err, transport.ErrReplaced) || errors.Is(err, transport.ErrRole)
}
