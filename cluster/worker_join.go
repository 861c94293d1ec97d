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

// Tries of a worker whose name another one has that may be dead: it is known at the latest when the coordinator has not
// heard of it for its silence.
const (
	retryEvery = time.Second
	retryTime  = 15 * time.Second
	// limitNames is how many names a worker tries that was given none.
	limitNames = 64
)

// retries are those of one reason.
type retries struct{ began time.Time }

// next waits for the next try; false: there is none.
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

// joinAs gets a certificate by the worker's name. Where that is another worker's, and nobody has chosen it, it takes the
// next one that is free: the name with a number.
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
			w.log.Warn("another worker has the name and may have died; this one tries again", "name", w.cfg.Name, "err", err)
		case errors.Is(err, ErrNameHeld) && ctx.Err() == nil && w.unnamed && number < limitNames:
			number++
			again = retries{}
			w.log.Warn("another worker has the name; this one joins by the next", "name", w.cfg.Name, "err", err)
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
		if name := pki.NameIn(cert); name != "" { // which may have a number
			w.call(name)
		}
	}
	if err == nil && w.cfg.CertFile != "" && w.cfg.Token.ID != "" {
		if why := outlived(cert, w.root, w.cfg.Token, clock.Now()); why != "" {
			w.log.Warn("the certificate is of no use any more; the worker joins again", "file", w.cfg.CertFile, "why", why)
			err = os.ErrNotExist
		}
	}
	if w.cfg.CertFile == "" || errors.Is(err, os.ErrNotExist) {
		if w.cfg.Token.ID == "" {
			return fmt.Errorf("a token is needed to join (--token-file): %w", cmp.Or(err, errors.New("there is no certificate")))
		}
		if err := checkRole("token", w.cfg.Token.Role, RoleWorker); err != nil {
			return err
		}
		cert, err = w.joinAs(ctx)
		if err != nil {
			return fmt.Errorf("joining the cluster at %s: %w", w.cfg.Join, err)
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

// renew has the coordinator sign a new certificate for the identity that it knows this
// process by.
func (w *worker) renew(ctx context.Context, csr []byte) ([]byte, error) {
	return renew(ctx, w.at, w.root, w.keeper, csr)
}

// dialCoordinator opens a stream to the coordinator, wherever that is now.
func (w *worker) dialCoordinator(ctx context.Context, protocol string) (net.Conn, error) {
	return dialCoordinator(ctx, w.at, w.root, w.keeper, protocol)
}

// final reports whether an error of dialling the coordinator means that this process never will be let in again.
func final(err error) bool {
	return errors.Is(err, transport.ErrRevoked) || errors.Is(err, transport.ErrReplaced) || errors.Is(err, transport.ErrRole)
}
