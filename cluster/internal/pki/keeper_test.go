package pki_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
)

// A log collects lines.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

type renewFunc = func(ctx context.Context, csr []byte) ([]byte, error)

// keep runs a keeper with a worker's certificate of a day. The bubble ends it.
func keep(t *testing.T, a *pki.Authority, renew renewFunc) (*pki.Keeper, *log, context.CancelFunc) {
	cert, err := a.Issue(worker, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	l := new(log)
	k := pki.NewKeeper(cert, renew, slog.New(slog.NewTextHandler(l, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	return k, l, run(ctx, cancel, k)
}

// run starts a keeper, and returns a function that stops it and waits.
func run(ctx context.Context, cancel context.CancelFunc, k *pki.Keeper) context.CancelFunc {
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		k.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func leafOf(t *testing.T, k *pki.Keeper) *x509.Certificate {
	t.Helper()
	cert, err := k.Get()
	if err != nil {
		t.Fatal(err)
	}
	return cert.Leaf
}

// TestKeeperRenews: a certificate is renewed with a new key after two thirds of its validity, and connections stay open.
func TestKeeperRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		var at []time.Time
		k, _, stop := keep(t, a, func(_ context.Context, csr []byte) ([]byte, error) {
			at = append(at, time.Now())
			return a.Sign(csr, worker, 24*time.Hour)
		})
		began, first := time.Now(), leafOf(t, k)
		server := pki.ServerTLS(a.Root(), always(issueAt(t, a, coordinator, time.Now(), nil)))
		if m := meet(server, pki.ClientTLS(a.Root(), k.Get)); m.err() != nil {
			t.Fatal(m.err())
		}
		time.Sleep(10 * 24 * time.Hour)
		stop()
		if len(at) < 14 || len(at) > 16 {
			t.Errorf("renewed %d times in 10 days", len(at))
		}
		last := began
		differ := false
		for i, when := range at {
			pause := when.Sub(last)
			if pause < 15*time.Hour || pause > 17*time.Hour {
				t.Errorf("renewal %d after %v", i, pause)
			}
			differ = differ || pause != at[0].Sub(began)
			last = when
		}
		if !differ {
			t.Error("no chance in the times")
		}
		now := leafOf(t, k)
		if bytes.Equal(now.RawSubjectPublicKeyInfo, first.RawSubjectPublicKeyInfo) || time.Now().After(now.NotAfter) {
			t.Errorf("%v", now.NotAfter)
		}
		if issued := issueAt(t, a, coordinator, time.Now(), nil); meet(pki.ServerTLS(a.Root(), always(issued)),
			pki.ClientTLS(a.Root(), k.Get)).err() != nil {
			t.Error("the renewed certificate is refused")
		}
	})
}

// TestKeeperTriesAgain: failed renewals are tried again after growing pauses. A warning comes after a third of the remaining
// time, an error after the certificate has expired. The old certificate stays in use.
func TestKeeperTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		var mu sync.Mutex
		var at []time.Time
		away := true
		k, l, stop := keep(t, a, func(_ context.Context, csr []byte) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Now())
			if away {
				return nil, errors.New("the coordinator is away")
			}
			return a.Sign(csr, worker, 24*time.Hour)
		})
		defer stop()
		began, old := time.Now(), leafOf(t, k)
		check := func(hours time.Duration, infos, warns, errs bool) {
			t.Helper()
			time.Sleep(time.Until(began.Add(hours * time.Hour)))
			synctest.Wait()
			if i, w, e := l.count("level=INFO") > 0, l.count("level=WARN") > 0, l.count("level=ERROR") > 0; i != infos || w != warns || e != errs {
				t.Errorf("after %d h: info %v, warning %v, error %v", hours, i, w, e)
			}
			if !leafOf(t, k).Equal(old) {
				t.Error("the old certificate is gone")
			}
		}
		check(15, false, false, false)
		check(17, true, false, false)
		check(18, true, false, false)
		check(20, true, true, false)
		check(23, true, true, false)
		check(25, true, true, true)
		mu.Lock()
		away = false
		for i := 1; i < len(at); i++ {
			pause := at[i].Sub(at[i-1])
			most := 5 * time.Minute
			if i < 8 {
				most = time.Second << (i - 1)
			}
			if pause > most {
				t.Errorf("pause %d is %v, want at most %v", i, pause, most)
			}
		}
		if len(at) < 8*12 || len(at) > 10*30 {
			t.Errorf("%d attempts in 9 hours", len(at))
		}
		mu.Unlock()
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if leafOf(t, k).Equal(old) || time.Now().After(leafOf(t, k).NotAfter) {
			t.Error("it did not come back")
		}
	})
}

// TestKeeperChecks: a keeper checks the renewed certificate.
func TestKeeperChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, other := newAuthority(t), newAuthority(t)
		_, csrOfOther, err := pki.NewRequest(worker)
		if err != nil {
			t.Fatal(err)
		}
		at := func(now time.Time, id pki.Identity) renewFunc {
			return func(_ context.Context, csr []byte) ([]byte, error) {
				// Signed at another time: through a token, which is the way that has a clock.
				token, err := a.NewToken(id.Role, 10*24*time.Hour, now)
				if err != nil {
					return nil, err
				}
				der, _, err := a.SignJoin(token.ID, token.Secret[:], csr, id.Name, now)
				return der, err
			}
		}
		for _, tt := range []struct {
			name  string
			renew renewFunc
			want  string
		}{
			{"nothing", func(context.Context, []byte) ([]byte, error) { return nil, nil }, "the renewed certificate"},
			{"nonsense", func(context.Context, []byte) ([]byte, error) { return []byte("nonsense"), nil }, "the renewed certificate"},
			{"a foreign authority's", func(_ context.Context, csr []byte) ([]byte, error) { return other.Sign(csr, worker, time.Hour) },
				"not signed by the root"},
			{"for another key", func(context.Context, []byte) ([]byte, error) { return a.Sign(csrOfOther, worker, time.Hour) },
				"another private key"},
			{"another name", func(_ context.Context, csr []byte) ([]byte, error) {
				return a.Sign(csr, pki.Identity{Name: "x", Role: pki.Worker}, time.Hour)
			}, "is for worker x; want worker troupe-worker-0"},
			{"another role", func(_ context.Context, csr []byte) ([]byte, error) {
				return a.Sign(csr, pki.Identity{Name: worker.Name, Role: pki.Viewer}, time.Hour)
			}, "is for viewer troupe-worker-0"},
			{"expired", at(time.Now().Add(-48*time.Hour), worker), "check the clocks"},
			{"not yet valid", at(time.Now().Add(48*time.Hour), worker), "check the clocks"},
			{"no answer", func(ctx context.Context, _ []byte) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }, "deadline"},
		} {
			k, l, stop := keep(t, a, tt.renew)
			old := leafOf(t, k)
			time.Sleep(17 * time.Hour)
			synctest.Wait()
			if l.count(tt.want) == 0 || !leafOf(t, k).Equal(old) {
				t.Errorf("%s: %s", tt.name, &l.b)
			}
			stop()
		}
	})
}

// TestKeeperFarClock: certificates that look old when they arrive are not renewed in a tight loop.
func TestKeeperFarClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		n := 0
		_, _, stop := keep(t, a, func(_ context.Context, csr []byte) ([]byte, error) {
			n++
			past := time.Now().Add(-20 * time.Hour)
			token, err := a.NewToken(pki.Worker, time.Hour, past)
			if err != nil {
				return nil, err
			}
			der, _, err := a.SignJoin(token.ID, token.Secret[:], csr, worker.Name, past)
			return der, err
		})
		time.Sleep(16*time.Hour + 24*time.Hour)
		stop()
		if n < 10 || n > 30 {
			t.Errorf("renewed %d times in a day", n)
		}
	})
}

// TestKeeperOnRenewed: OnRenewed gets each new certificate and may fail.
func TestKeeperOnRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		cert, err := a.Issue(worker, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		cert.Leaf = nil // as older code leaves it
		l := new(log)
		k := pki.NewKeeper(cert, func(_ context.Context, csr []byte) ([]byte, error) { return a.Sign(csr, worker, time.Hour) },
			slog.New(slog.NewTextHandler(l, nil)))
		var kept []tls.Certificate
		k.OnRenewed(func(cert tls.Certificate) error {
			kept = append(kept, cert)
			return errors.New("no space left")
		})
		ctx, cancel := context.WithCancel(t.Context())
		stop := run(ctx, cancel, k)
		time.Sleep(50 * time.Minute)
		stop()
		if len(kept) != 1 || !kept[0].Leaf.Equal(leafOf(t, k)) || l.count("no space left") != 1 {
			t.Errorf("%d, %s", len(kept), &l.b)
		}
	})
}

// TestKeeperBroken: a keeper needs a certificate.
func TestKeeperBroken(t *testing.T) {
	a := newAuthority(t)
	good := issue(t, a, worker)
	for _, chain := range [][][]byte{nil, {good.Certificate[0]}, {[]byte("nonsense"), a.Root()}} {
		l := new(log)
		k := pki.NewKeeper(tls.Certificate{Certificate: chain, PrivateKey: good.PrivateKey}, nil, slog.New(slog.NewTextHandler(l, nil)))
		if _, err := k.Get(); err == nil {
			t.Error("it gave a certificate")
		}
		k.Run(t.Context())
		if l.count("level=ERROR") != 1 {
			t.Errorf("%s", &l.b)
		}
	}
}
