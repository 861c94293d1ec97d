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

// Pauses between tries to reach a coordinator, and how often is said that it can't be. The
// most is short beside the time in which a name server forgets that a name did not exist.
const (
	reachFirst    = 100 * time.Millisecond
	reachMost     = 2 * time.Second
	reachSayEvery = 30 * time.Second
)

// reach calls f until the coordinator is there: where many processes are started at once
// it may come last, and its name may not exist yet. What trying again does not help ends it.
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
	case locate.Absent(err):
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

// farError is that of a worker which the coordinator has welcomed, and which can't reach it at the addresses that it names
// as its own: what joins at one address may be sent to another one.
type farError struct {
	coordinator *wire.Peer
	err         error
}

func (e *farError) Error() string { return e.err.Error() }

func (e *farError) Unwrap() error { return e.err }

// reachCoordinator dials the coordinator at its own addresses.
func (w *worker) reachCoordinator(ctx context.Context, coordinator *wire.Peer) *farError {
	ctx, cancel := context.WithTimeout(ctx, beat.ReachTime)
	defer cancel()
	var all []error
	for _, of := range ownAddresses(coordinator) {
		if err := touch(ctx, of.address, w.transport.Dial); err != nil {
			all = append(all,
				fmt.Errorf("the coordinator names %s as its own address, and this worker can't reach it there: %w; start the coordinator with an address that workers reach (%s)", of.address, err, of.flags))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &farError{coordinator, errors.Join(all...)}
}

// awaitCoordinator tries the coordinator's own addresses until they are reached, or it may have others. Meanwhile the
// worker is no member: it would be given ranks, and could not be heard of them.
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

// dialBack ends the membership where the worker can't reach the coordinator at the addresses that this names: messages go there.
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
