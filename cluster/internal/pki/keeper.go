package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/troupe-ml/troupe/internal/base/clock"
)

// A Keeper keeps a process's certificate and renews it in time. Pass its Get to ServerTLS and
// ClientTLS as the cert function. Open connections keep the certificate that they were made with.
type Keeper struct {
	renew   func(ctx context.Context, csrDER []byte) (certDER []byte, err error)
	renewed func(tls.Certificate) error
	logger  *slog.Logger
	current atomic.Pointer[tls.Certificate]
	broken  error // of the first certificate
}

// NewKeeper makes a keeper for a certificate with its root, as Issue and Bind return it. renew gets a
// certificate request for the same identity with a new key, and returns the certificate that the
// authority has signed.
func NewKeeper(cert tls.Certificate, renew func(ctx context.Context, csrDER []byte) (certDER []byte, err error),
	logger *slog.Logger) *Keeper {
	k := &Keeper{renew: renew, logger: logger}
	if len(cert.Certificate) == 2 && cert.Leaf == nil {
		cert.Leaf, _ = x509.ParseCertificate(cert.Certificate[0])
	}
	if len(cert.Certificate) != 2 || cert.Leaf == nil {
		k.broken = fmt.Errorf("the certificate of this process has %d parts, or one can't be parsed; want its own and the root",
			len(cert.Certificate))
	}
	k.current.Store(&cert)
	return k
}

// OnRenewed sets a function that is called with each new certificate, such as one that writes it to a
// file. Call OnRenewed before Run.
func (k *Keeper) OnRenewed(f func(tls.Certificate) error) { k.renewed = f }

// Get returns the current certificate, even if it has expired: the peer, whose clock counts, refuses
// an expired one.
func (k *Keeper) Get() (*tls.Certificate, error) {
	if k.broken != nil {
		return nil, k.broken
	}
	return k.current.Load(), nil
}

// Run renews the certificate whenever two thirds of its validity are over, until ctx ends. If a renewal
// fails, it tries again with growing pauses, without limit.
func (k *Keeper) Run(ctx context.Context) {
	if k.broken != nil {
		k.logger.Error("can't renew the certificate", "error", k.broken)
		return
	}
	for due := renewalTime(k.current.Load().Leaf); ; {
		if !sleepUntil(ctx, due) || !k.renewNow(ctx, k.current.Load().Leaf) {
			return
		}
		// If this host's clock is far ahead of the authority's, two thirds are over at once.
		leaf, now := k.current.Load().Leaf, clock.Now()
		due = renewalTime(leaf)
		if soonest := now.Add(max(leaf.NotAfter.Sub(now)/3, retryMin)); due.Before(soonest) {
			due = soonest
		}
	}
}

// RenewDue renews the certificate once if two thirds of its validity are over. It is for short-lived
// processes, which don't use Run.
func (k *Keeper) RenewDue(ctx context.Context) error {
	if k.broken != nil {
		return k.broken
	}
	if clock.Now().Before(renewalTime(k.current.Load().Leaf)) {
		return nil
	}
	return k.try(ctx)
}

// renewNow tries until there is a new certificate; false: ctx has ended.
func (k *Keeper) renewNow(ctx context.Context, old *x509.Certificate) bool {
	pause := retryMin
	began := clock.Now()
	warnAt := began.Add(old.NotAfter.Sub(began) / 3)
	for attempt := 1; ; attempt++ {
		err := k.try(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		now := clock.Now()
		level, what := slog.LevelInfo, "can't renew the certificate yet"
		if !now.Before(old.NotAfter) {
			level, what = slog.LevelError, "the certificate has expired and can't be renewed; peers refuse new connections"
		} else if !now.Before(warnAt) {
			level = slog.LevelWarn
		}
		// Partly random, so that workers that lost the coordinator together don't all return at once.
		// Never past the time of the warning or of the expiry.
		next := now.Add(pause/2 + rand.N(pause/2))
		for _, mark := range []time.Time{warnAt, old.NotAfter} {
			if now.Before(mark) && next.After(mark) {
				next = mark
			}
		}
		k.logger.Log(ctx, level, what, "error", err, "expires", stamp(old.NotAfter), "attempt", attempt, "next_try_ms",
			next.Sub(now).Milliseconds())
		if !sleepUntil(ctx, next) {
			return false
		}
		pause = min(2*pause, retryMax)
	}
}

// try renews once.
func (k *Keeper) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	old := k.current.Load()
	id, err := identityIn(old.Leaf)
	if err != nil {
		return err
	}
	key, csr, err := NewRequest(id)
	if err != nil {
		return err
	}
	der, err := k.renew(ctx, csr)
	if err != nil {
		return err
	}
	cert, err := Bind(key, der, old.Certificate[1])
	if err != nil {
		return fmt.Errorf("check the renewed certificate: %w", err)
	}
	if got, err := identityIn(cert.Leaf); err != nil || got != id {
		return errors.Join(err, fmt.Errorf("the renewed certificate is for %s; want %s", got, id))
	}
	if now := clock.Now(); now.Before(cert.Leaf.NotBefore) || now.After(cert.Leaf.NotAfter) {
		return fmt.Errorf("the renewed certificate is valid from %s to %s, but this host's clock says %s; check the clocks of this host and of the coordinator's",
			stamp(cert.Leaf.NotBefore), stamp(cert.Leaf.NotAfter), stamp(now))
	}
	k.current.Store(&cert)
	k.logger.Debug("certificate renewed", "identity", id.String(), "expires", stamp(cert.Leaf.NotAfter))
	if k.renewed != nil {
		if err := k.renewed(cert); err != nil {
			// The process uses it anyway.
			k.logger.Warn("can't store the renewed certificate", "error", err)
		}
	}
	return nil
}

// renewalTime returns when two thirds of a certificate's validity are over, plus or minus a random thirtieth of it.
func renewalTime(leaf *x509.Certificate) time.Time {
	signed := leaf.NotBefore.Add(ClockSkew)
	life := max(leaf.NotAfter.Sub(signed), time.Second)
	return signed.Add(life*19/30 + rand.N(life/15))
}

// sleepUntil sleeps until a wall-clock time; false: ctx has ended.
func sleepUntil(ctx context.Context, t time.Time) bool {
	t = t.Round(0) // without the monotonic reading, which stands still while a machine is suspended
	for {
		left := t.Sub(clock.Now())
		if left <= 0 {
			return ctx.Err() == nil
		}
		timer := time.NewTimer(min(left, wakeMax))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}
