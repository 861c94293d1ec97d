package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/internal/wire"
)

// A worker that leaves is not in a hurry. So the free worker that is reserved for its ranks prepares for them first, while the run
// computes (worker_prepare.go), and the ranks move after the step that is in progress then.

// preparing is the preparation of a reserved worker.
type preparing struct {
	ready chan struct{}      // closed when the worker is ready, or will not be in time
	end   context.CancelFunc // called when the worker is not reserved any more
}

// prepareTime is how long ranks wait for a reserved worker to prepare. Of the time until they must move, they wait a part.
const (
	prepareTime = 10 * time.Second
	preparePart = 4
)

// prepare lets the reserved workers prepare for the ranks that they are reserved for. moveBy is when the ranks must move; zero: there is
// no limit. Each channel is closed when a worker is ready, or cannot be.
func (a *attempt) prepare(moveBy time.Time) (ready []<-chan struct{}) {
	within := prepareTime
	if !moveBy.IsZero() {
		within = min(within, time.Until(moveBy)/preparePart)
	}
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	for _, w := range a.c.workers {
		if w.reserved != a {
			continue
		}
		t := a.preparing[w.ID]
		if t == nil {
			ctx, end := context.WithCancel(context.Background())
			t = &preparing{make(chan struct{}), end}
			if a.preparing == nil {
				a.preparing = make(map[uuid.UUID]*preparing)
			}
			a.preparing[w.ID] = t
			go a.prepareOn(ctx, w.Member, slices.Clone(w.due), within, t.ready) // ends with the reservation
		}
		ready = append(ready, t.ready)
	}
	return ready
}

// prepareOn asks a worker to prepare for ranks, and closes ready. When the reservation has ended and the worker has no ranks, it tells
// the worker to drop what it has made.
func (a *attempt) prepareOn(ctx context.Context, m beat.Member, ranks []int, within time.Duration, ready chan<- struct{}) {
	err := a.askToPrepare(ctx, m, ranks, within)
	close(ready)
	if err != nil && ctx.Err() == nil {
		a.c.log.Warn("a worker could not prepare for ranks", "run", a.run, "worker", m.Name, "ranks", ranks, "err", err)
	}
	<-ctx.Done()
	a.c.mu.Lock()
	w := a.c.workers[m.ID]
	unused := w != nil && w.attempt == nil && w.reserved == nil
	a.c.mu.Unlock()
	if unused {
		a.c.release(&share{Member: m}, &wire.Release{Attempt: a.id[:], Run: a.run[:]})
	}
}

func (a *attempt) askToPrepare(ctx context.Context, m beat.Member, ranks []int, within time.Duration) error {
	order, err := orderOf(a.as)
	if err != nil {
		return err
	}
	ask := order(ranks, a.shadows)
	ask.Attempt = a.id[:]
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	got, err := a.c.ask(limited, m.ID, &wire.Control{Kind: &wire.Control_Prepare{Prepare: ask}})
	if err == nil && got.GetPrepared().GetError() != "" {
		err = errors.New(got.GetPrepared().GetError())
	}
	return err
}

// unprepare ends the preparation of a worker, if there is one. c.mu is held.
func (a *attempt) unprepare(worker uuid.UUID) {
	if t := a.preparing[worker]; t != nil {
		delete(a.preparing, worker)
		t.end()
	}
}

// moveWhen lets the ranks of the leaving workers move after the step that is in progress when all is ready. mu is held.
func (a *attempt) moveWhen(ready []<-chan struct{}) {
	a.moves++
	number := a.moves
	go func() { // ends with the preparations
		for _, one := range ready {
			<-one
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.moves == number && !a.over() {
			a.actors.Between(a.handOver)
		}
	}()
}
