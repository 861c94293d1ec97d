package cluster

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
)

// Pauses between tries to reach a coordinator, and how often is said that it can't be. The
// most is short beside the time in which a name server forgets that a name did not exist.
const (
	reachFirst    = 100 * time.Millisecond
	reachMost     = 2 * time.Second
	reachSayEvery = 30 * time.Second
	// tryNext is how long an address may take to answer until the next that was found is tried
	// too.
	tryNext = 200 * time.Millisecond
)

// reach calls f until the coordinator is there: where many processes are started at once
// it may come last, and its name may not exist yet. What trying again does not help ends it.
func (w *worker) reach(ctx context.Context, f func() error) error {
	for pause := reachFirst; ; pause = min(2*pause, reachMost) {
		err := f()
		if err == nil || ctx.Err() != nil || !absent(err) {
			return err
		}
		w.obstacles.tell(w.log, w.cfg.Join, err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// obstacles are what keeps a worker from its coordinator, by what is said of them. The side that is refused has to say so:
// nobody who has started a worker reads the log of the other.
type obstacles struct {
	mu   sync.Mutex
	said map[string]time.Time
}

// tell says why a try has failed, which another one follows: at once, and then every reachSayEvery.
func (o *obstacles) tell(log *slog.Logger, coordinator string, err error) {
	text := "this worker is no member of the coordinator's cluster; it keeps trying"
	var far *farError
	switch {
	case errors.As(err, &far):
		text = "this worker reaches the coordinator at one of its addresses alone, and therefore gets no ranks; it keeps trying"
	case errors.Is(err, beat.ErrUnreachable):
		text = "the coordinator can't reach this worker, which therefore gets no ranks; it keeps trying"
	case absent(err):
		text = "the coordinator can't be reached; the worker keeps trying"
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if last, known := o.said[text]; known && time.Since(last) < reachSayEvery {
		return
	}
	if o.said == nil {
		o.said = make(map[string]time.Time)
	}
	o.said[text] = time.Now()
	log.Warn(text, "coordinator", coordinator, "err", err)
}

// gone notes that the worker is a member: what comes then is told at once.
func (o *obstacles) gone() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.said)
}

// absent reports whether an error says that nobody has answered, in contrast to a no.
func absent(err error) bool {
	var search *searchError
	if errors.As(err, &search) {
		return search.absent()
	}
	if errors.Is(err, transport.ErrRefused) || errors.Is(err, ErrRefused) {
		return false
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || // with errors of names
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) // of a proxy, or one that is about to end
}

// outlived says why a certificate in a file is no longer of use to a process that has a token
// too: it has expired, or the token is of another cluster.
func outlived(cert tls.Certificate, root []byte, t pki.Token, now time.Time) string {
	if sha256.Sum256(root) != t.Authority {
		return "the token is of another cluster"
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return err.Error()
	}
	if leaf.Subject.SerialNumber == "" { // see pki.Authority.Accepts
		return "an earlier version has made it"
	}
	if now.After(leaf.NotAfter) {
		return fmt.Sprintf("it has expired, on %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return ""
}
