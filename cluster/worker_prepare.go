package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// While a worker that leaves ends its step, the free worker that is reserved for its ranks prepares for them: it resolves the plan,
// opens its devices, and builds the stages and the shadows, with all memory of a step but without their state.

// preparation is what a worker has prepared for an assignment. It belongs to the membership until that assignment takes it, or until it
// is dropped: when the coordinator assigns anything else, releases the attempt that the assignment would continue, is silent for longer
// than the lease, or is another one.
type preparation struct {
	of    uuid.UUID // the attempt that the assignment continues
	m     *wire.Assign
	p     *part         // for its lease, its plan and its log
	ended atomic.Bool   // it is not wanted any more
	done  chan struct{} // closed when nothing is being built any more
	made  *keptPart     // nil: it is not done, or has failed, or was taken; the membership's mu
}

// prepare begins a preparation in the place of the one before, and answers when it has ended. w.mu is held.
func (w *membership) prepare(request uint64, m *wire.Assign) {
	answer := &wire.Assigned{Attempt: m.GetAttempt()}
	t := &preparation{m: m, done: make(chan struct{}), p: &part{w: w, order: m,
		lease: time.Duration(m.GetLeaseS() * float64(time.Second))}}
	var err error
	if t.of, err = uuid.FromBytes(m.GetAttempt()); err == nil {
		t.p.run, err = uuid.FromBytes(m.GetRun())
	}
	if err == nil && (len(w.parts) > 0 || w.kept != nil) {
		err = errors.New("this worker has ranks already")
	}
	before := w.dropPrepared("another preparation has begun")
	if err == nil {
		w.prepares = t
	}
	w.running.Go(func() { // ends when the stages are built
		if before != nil {
			<-before.done
		}
		var k *keptPart
		if err == nil {
			k, err = t.make()
		}
		w.mu.Lock()
		wanted := !t.ended.Load()
		if wanted {
			t.made, k = k, nil
		}
		w.mu.Unlock()
		k.close("they are not wanted any more")
		close(t.done)
		if err != nil {
			answer.Error = err.Error()
		}
		if err != nil && wanted {
			w.log.Warn("can't prepare for ranks", "ranks", m.GetRanks(), "err", err)
		}
		w.tell(&wire.Control{Request: request, Kind: &wire.Control_Prepared{Prepared: answer}})
	})
}

// make prepares.
func (t *preparation) make() (*keptPart, error) {
	began := time.Now()
	pl, err := t.p.resolvePlan(t.m, nil)
	if err != nil {
		return nil, err
	}
	var ranks, shadows []int
	for _, rank := range t.m.GetRanks() {
		if rank < 0 || int(rank) >= pl.Grid().World() {
			return nil, fmt.Errorf("rank %d of %d does not exist", rank, pl.Grid().World())
		}
		ranks = append(ranks, int(rank))
	}
	for _, h := range t.m.GetShadows() {
		shadows = append(shadows, int(h))
	}
	if n := len(shadows); n > 0 && n != pl.Grid().World() {
		return nil, fmt.Errorf("there are %d places of shadows for %d ranks", n, pl.Grid().World())
	}
	if err := pl.CheckRenewal(); err != nil {
		return nil, err
	}
	if err := checkRanks(pl, nil, ranks, shadows); err != nil {
		return nil, err
	}
	k := &keptPart{attempt: t.of, digest: string(t.m.GetDigest()), p: t.p}
	if k.set, err = t.p.open(pl.Config(), pl, ranks, t.m.GetOrdinals()); err != nil {
		return nil, err
	}
	if k.stages, err = pl.Prepare(ranks, shadows, k.set.OfRanks(), t.ended.Load); err != nil {
		k.set.Close()
		return nil, err
	}
	t.p.w.log.Info("prepared for ranks", "run", t.p.run, "ranks", t.m.GetRanks(), "took", time.Since(began))
	return k, nil
}

// fits reports whether an assignment is the one that was prepared for.
func (t *preparation) fits(m *wire.Assign) bool {
	r := m.GetRenewal()
	return r != nil && !r.GetRescue() && bytes.Equal(r.GetAttempt(), t.m.GetAttempt()) && bytes.Equal(m.GetRun(), t.m.GetRun()) &&
		slices.Equal(m.GetRanks(), t.m.GetRanks()) && sameTexts(m, t.m) &&
		!slices.ContainsFunc(r.GetCopies(), func(from int32) bool { return from < 0 }) && len(r.GetCopies()) == len(m.GetRanks())
}

// takePrepared returns what this worker has prepared for an assignment, when it has ended; nil: nothing. Anything else that was prepared is
// dropped, and its memory is free when takePrepared returns.
func (w *membership) takePrepared(m *wire.Assign) *keptPart {
	w.mu.Lock()
	t := w.prepares
	w.prepares = nil
	w.mu.Unlock()
	if t == nil {
		return nil
	}
	fits := t.fits(m)
	if !fits {
		t.ended.Store(true)
	}
	<-t.done
	w.mu.Lock()
	k := t.made
	t.made = nil
	w.mu.Unlock()
	if !fits {
		k.close("another attempt has begun")
		return nil
	}
	return k
}

// dropPrepared ends the preparation, and returns it; nil: there is none. w.mu is held.
func (w *membership) dropPrepared(why string) *preparation {
	t := w.prepares
	if t == nil {
		return nil
	}
	w.prepares = nil
	t.ended.Store(true)
	if k := t.made; k != nil {
		t.made = nil
		w.running.Go(func() { k.close(why) }) // ends by itself
	}
	return t
}

// sameTexts reports whether two assignments lead to the same plan.
func sameTexts(a, b *wire.Assign) bool {
	return bytes.Equal(a.GetDigest(), b.GetDigest()) && bytes.Equal(a.GetConfig(), b.GetConfig()) &&
		bytes.Equal(a.GetModel(), b.GetModel()) && bytes.Equal(a.GetTable(), b.GetTable())
}

// planOf returns the plan of what was kept, if an assignment has the same one; nil: it has not.
func (k *keptPart) planOf(m *wire.Assign) *plan.Plan {
	if k == nil || k.p.plan == nil || !sameTexts(m, k.p.order) {
		return nil
	}
	return k.p.plan
}
