package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"
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
