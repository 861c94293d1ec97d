package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/cluster/internal/locate"
	"github.com/troupe-ml/troupe/internal/wire"
)

// Pauses between tries to reach a coordinator, and how often a failure is logged. reachMost is short
// compared with the time for which a name server remembers that a name does not exist.
const (
	reachFirst    = 100 * time.Millisecond
	reachMost     = 2 * time.Second
	reachSayEvery = 30 * time.Second
)

// reach calls f until it reaches the coordinator: if many processes start at once, the coordinator
// may come last, and its name may not exist yet. Errors that another try can't fix end it.
func (w *worker) reach(ctx context.Context, f func() error) error {
	for pause := reachFirst; ; pause = min(2*pause, reachMost) {
		err := f()
		if err == nil || ctx.Err() != nil || !locate.Absent(err) {
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

// obstacles limits how often a worker logs why it can't reach or join the coordinator, by log message. The worker logs it
// too, because the person who starts a worker may not see the coordinator's log.
type obstacles struct {
	mu   sync.Mutex
	said map[string]time.Time
	last error // of the last failed try; nil: the worker is a member, or has not tried yet
}

// why returns why the last try failed; nil: none did since the worker was a member.
func (o *obstacles) why() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// tell logs why a try failed, at once and then every reachSayEvery. Another try follows.
func (o *obstacles) tell(log *slog.Logger, coordinator string, err error) {
	text := "this worker can't join the cluster yet; it keeps trying"
	var far *farError
	switch {
	case errors.As(err, &far):
		text = "this worker can't reach the coordinator at all its addresses, so it gets no ranks; it keeps trying"
	case errors.Is(err, beat.ErrUnreachable):
		text = "the coordinator can't reach this worker, so it gets no ranks; it keeps trying"
	case locate.Absent(err):
		text = "can't reach the coordinator; the worker keeps trying"
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = err
	if last, known := o.said[text]; known && time.Since(last) < reachSayEvery {
		return
	}
	if o.said == nil {
		o.said = make(map[string]time.Time)
	}
	o.said[text] = time.Now()
	log.Warn(text, "coordinator", coordinator, "err", err)
}

// gone notes that the worker is a member, so that the next failure is logged at once.
func (o *obstacles) gone() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.said)
	o.last = nil
}

// farError says that a welcomed worker can't reach the coordinator at the addresses that the coordinator advertises. They
// may differ from the address at which the worker joined.
type farError struct {
	coordinator *wire.Peer
	err         error
}

func (e *farError) Error() string { return e.err.Error() }

func (e *farError) Unwrap() error { return e.err }

// reachCoordinator dials the coordinator at the addresses that it advertises.
func (w *worker) reachCoordinator(ctx context.Context, coordinator *wire.Peer) *farError {
	ctx, cancel := context.WithTimeout(ctx, beat.ReachTime)
	defer cancel()
	var all []error
	for _, of := range ownAddresses(coordinator) {
		if err := touch(ctx, of.address, w.transport.Dial); err != nil {
			all = append(all,
				fmt.Errorf("can't reach the coordinator at %s, the address that it advertises: %w; start the coordinator with an address that workers reach (%s)", of.address, err, of.flags))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &farError{coordinator, errors.Join(all...)}
}

// awaitCoordinator tries the coordinator's addresses until they can be reached, or until the coordinator may have others.
// Meanwhile the worker is not a member: it could not report about ranks that it got.
func (w *worker) awaitCoordinator(ctx context.Context, far *farError) {
	for began := time.Now(); far != nil && ctx.Err() == nil && time.Since(began) < reachSayEvery; far = w.reachCoordinator(ctx,
		far.coordinator) {
		w.obstacles.tell(w.log, w.cfg.Join, far)
		select {
		case <-time.After(reachMost):
		case <-ctx.Done():
			return
		}
	}
}

// dialBack ends the membership if the worker can't reach the coordinator at the addresses that it advertises: messages go
// there.
func (w *membership) dialBack(coordinator *wire.Peer) {
	far := w.reachCoordinator(w.leased, coordinator)
	if far == nil || w.leased.Err() != nil {
		return
	}
	w.mu.Lock()
	w.far = far
	w.mu.Unlock()
	w.stop()
}
