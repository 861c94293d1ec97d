package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// Assign gives every worker its ranks. With cluster.shadow = "auto" they have no shadows if a worker has no room for them.
func (a *attempt) Assign(ctx context.Context, as plan.Assignment) (plan.Ranks, error) {
	a.run, a.as = as.Run, as
	if a.renewal == nil {
		if err := a.divide(as); err != nil {
			return plan.Ranks{}, err
		}
		if err := a.dropDistantShadows(ctx, as); err != nil {
			return plan.Ranks{}, err
		}
	} else if a.shadows.Any() {
		if err := a.placeShadows(as); err != nil {
			return plan.Ranks{}, err
		}
		a.warnShadows(as)
	}
	r, err := a.assign(ctx, as)
	if refused := (*workerError)(nil); errors.As(err, &refused) && refused.crowded && a.mayDropShadows(as) {
		if err := a.dropShadows(as, refused); err != nil {
			return r, err
		}
		return a.assign(ctx, as)
	}
	return r, err
}

// assign tells every worker its ranks, and waits until they are ready.
func (a *attempt) assign(ctx context.Context, as plan.Assignment) (plan.Ranks, error) {
	r := plan.Ranks{Shadows: a.shadows, Held: a.held(), Attempt: a.id, System: a.c.system, Hosts: make([]string, as.Plan.Grid().World()),
		Attach: func(c *actors.Codec) { a.c.mesh.Attach(c, a.processes()) }, Detach: func() { a.c.mesh.Detach(a.id) }, Clock: a.clock,
		CutLinks: a.cuts.links, Left: a.leftRanks, Loaded: a.loaded, Memory: func() []int64 { return a.rankMemory(as.Plan.Grid().World()) }}
	peers := make([]*wire.Peer, len(r.Hosts))
	if a.renewal != nil {
		r.Replaced = slices.Sorted(slices.Values(a.renewal.lost))
	}
	for _, s := range a.shares {
		for _, rank := range s.ranks {
			r.Hosts[rank] = s.Address
			peers[rank] = s.peer()
		}
	}
	order, err := orderOf(as)
	if err != nil {
		return r, err
	}
	if err := a.checkEdge(); err != nil {
		return r, err
	}
	probe := a.probe(as)
	defer a.unprobe(probe)
	r.Shares = make([]bool, len(r.Hosts))
	id := a.id // a copy: a message that is sent again after dropShadows still names the attempt that it was for
	for _, s := range a.busy() {
		m := order(s.ranks, a.shadows)
		m.Attempt, m.Generation, m.Hosts = id[:], a.generation, peers
		m.FromCheckpoint, m.WithState, m.Step = as.Stored, as.WithState, as.Step
		if a.onEdge(s) {
			probe.assign(m)
		}
		if a.renewal != nil {
			m.FromCheckpoint, m.WithState = as.Stored && as.Plan.Freezes(), false
			if m.Renewal, err = a.renewal.pack(as, s); err != nil {
				return r, err
			}
		}
		for _, d := range s.devices {
			m.Ordinals = append(m.Ordinals, d.GetOrdinal())
		}
		if err := a.c.mesh.Control(s.ID, &wire.Control{Kind: &wire.Control_Assign{Assign: m}}); err != nil {
			if a.renewal == nil {
				return r, a.lostError(s, err)
			}
			a.lost(s.Member, err)
		}
	}
	err = a.ready(ctx, func(got answer) {
		if a.onEdge(a.shareOf(got.from)) && a.seesFolder(probe, got) {
			for _, rank := range a.ranksOf(got.from) {
				r.Shares[rank] = true
			}
		}
	})
	return r, err
}

// orderOf returns what the assignments of an attempt have in common, by the ranks of a worker.
func orderOf(as plan.Assignment) (func(ranks []int, shadows plan.Shadows) *wire.Assign, error) {
	model, err := json.Marshal(as.Plan.Model().Config)
	if err != nil {
		return nil, err
	}
	digest, text := as.Plan.Digest(), as.Config.TOML()
	return func(ranks []int, shadows plan.Shadows) *wire.Assign {
		m := &wire.Assign{Run: as.Run[:], Config: text, Model: model, Table: as.Plan.TableText(), Digest: digest[:],
			EvalMicrobatches: int32(as.EvalMicrobatches), LeaseS: as.Config.Cluster.LeaseS}
		for _, rank := range ranks {
			m.Ranks = append(m.Ranks, int32(rank))
		}
		for _, h := range shadows.At {
			m.Shadows = append(m.Shadows, int32(h))
		}
		return m
	}, nil
}

// ready waits until every worker is ready to compute its ranks. A worker that is too late counts as failed. If one fails, so does the
// attempt; but one that continues another attempt begins without it: so the other workers bring the stages that they have kept to the last
// decided step and keep them again, and Watch ends the attempt for the next one. There, a worker that has lost what it should have kept is
// one that has failed: its ranks get their state from others.
func (a *attempt) ready(ctx context.Context, is func(got answer)) error {
	patience, waits := newPatience(a.c.awake), a.busy()
	defer patience.stop()
	var late *time.Timer // readyTime after the first worker was ready
	var first time.Time
	var tooLate <-chan time.Time
	gone := a.gone
	if a.renewal != nil {
		gone = nil
	}
	for len(waits) > 0 {
		select {
		case <-patience.timer.C:
			a.tellWaiting(fmt.Sprintf("the run has waited %.0f s for %s to get ready to compute%s", patience.waited().Seconds(), namesOf(waits),
				a.heldBy(waits)))
		case <-tooLate:
			if left := readyTime - a.c.awake.Since(first); left > 0 { // this process was frozen meanwhile
				late.Reset(left)
				continue
			}
			for _, s := range waits {
				a.lost(s.Member, fmt.Errorf("it was still not ready to compute %.0f s after the first worker was", readyTime.Seconds()))
			}
		case got := <-a.answers:
			if got.lost {
				if a.renewal != nil {
					waits = slices.DeleteFunc(waits, func(s *share) bool { return s.ID == got.from })
				}
				continue
			}
			if late == nil {
				late, first = time.NewTimer(readyTime), time.Now()
				defer late.Stop()
				tooLate = late.C
			}
			waits = slices.DeleteFunc(waits, func(s *share) bool { return s.ID == got.from })
			switch s := a.shareOf(got.from); {
			case s == nil: // an answer that nobody has asked for
			case got.error == "":
				is(got)
			case a.renewal != nil && got.unkept:
				a.lost(s.Member, errors.New(words.Cut(got.error, apiwire.LimitErrorBytes)))
			default:
				return &workerError{s.Name, got.error, got.crowded}
			}
		case <-gone:
			return a.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// readyTime is how long a worker may take to open its devices and to look for the run's folder, counted from the first
// worker that is ready. A slower one may have a driver or a disk that hangs. Unreachable workers are detected sooner: see
// Coordinator.far.
const readyTime = 2 * time.Minute

// heldBy lists the broken links of the workers that the run waits for; "": no broken link is known.
func (a *attempt) heldBy(waits []*share) string {
	var all []string
	for _, l := range a.cuts.links() {
		if slices.ContainsFunc(waits, func(s *share) bool { return s.Name == l.From || s.Name == l.To }) {
			all = append(all, l.String())
		}
	}
	if len(all) == 0 {
		return ""
	}
	return ": " + strings.Join(all, "; ")
}

// answer is a worker's answer to an assignment.
type answer struct {
	from  uuid.UUID
	lost  bool // it has failed: nothing else is known
	error string
	// unkept: it has lost the state that it should have kept.
	unkept bool
	// crowded: its ranks fit its memory, but not with the shadows of others.
	crowded bool
	probe   []byte // content of its answer to the probe
	blind   string // why it does not see the run's folder; "": it does
}

// answer handles a worker's message about the attempt.
func (a *attempt) answer(from uuid.UUID, m *wire.Control) {
	switch k := m.Kind.(type) {
	case *wire.Control_Assigned:
		a.mu.Lock()
		defer a.mu.Unlock()
		if string(k.Assigned.GetAttempt()) == string(a.id[:]) {
			select {
			case a.answers <- answer{from: from, error: k.Assigned.GetError(), unkept: k.Assigned.GetUnkept(),
				crowded: k.Assigned.GetCrowded(), probe: k.Assigned.GetProbeAnswer(), blind: k.Assigned.GetProbeError()}:
			default: // more answers than workers
			}
		}
	case *wire.Control_Released:
		if a.is(k.Released.GetAttempt()) {
			a.c.free(from, a)
		}
	}
}

// is reports whether an id is the attempt's.
func (a *attempt) is(id []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return string(id) == string(a.id[:])
}

// Release frees the workers.
func (a *attempt) Release() {
	a.mu.Lock()
	a.keepStep()
	a.mu.Unlock()
	a.c.mu.Lock()
	a.ended = time.Now()
	a.unreserve()
	a.c.mu.Unlock()
	m := &wire.Release{Attempt: a.id[:], Run: a.run[:], SavedStep: a.regrouped()}
	for _, s := range a.shares {
		if s.freed { // it may compute ranks of another run by now
			continue
		}
		if a.renewal != nil { // without an assignment it knows only that attempt, and may be about to keep its stages
			of := a.renewal.keptBy(s)
			a.c.release(s, &wire.Release{Attempt: of[:], Run: a.run[:], SavedStep: m.SavedStep})
		}
		a.c.release(s, m)
	}
	a.drop(true, m)
}

// release tells a worker to release its ranks. One that has left needs no message.
func (c *Coordinator) release(s *share, m *wire.Release) {
	_ = c.mesh.Control(s.ID, &wire.Control{Kind: &wire.Control_Release{Release: m}})
}

// free makes a worker available to another attempt, and reports whether it gets no more ranks, because it leaves or is no member.
func (c *Coordinator) free(worker uuid.UUID, a *attempt) (leaves bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.workers[worker]
	if w != nil && w.attempt == a {
		w.attempt = nil
		c.tell()
	}
	return w == nil || w.leaving
}

// unused frees workers that were chosen but got no assignment.
func (a *attempt) unused() {
	for _, s := range a.shares {
		a.c.free(s.ID, a)
	}
}
