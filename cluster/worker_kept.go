package cluster

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/stages"
)

// keptPart holds the stages of a part that has ended, for an attempt that continues it. It belongs to the membership until such an
// attempt takes it, or until it is closed: when the coordinator assigns anything else, releases that attempt, is silent for longer than
// the lease, or is another one.
type keptPart struct {
	attempt uuid.UUID
	digest  string // of the plan
	stages  []*actors.Kept
	set     *device.Set // on which they are
	p       *part       // for its lease and its log
}

// errUnkept: a worker has lost the state that it should have kept. Its ranks can get theirs from others.
var errUnkept = errors.New("the state of the ranks is lost")

const newerAttempt = "a newer attempt has begun"

// renewedBy reports whether an assignment continues the part. Such a part ends by itself: the coordinator has told its stages to halt and
// to keep their state. But they, and keep after them, may need a moment more than the assignment, and a part that is told to end keeps
// nothing.
func (p *part) renewedBy(m *wire.Assign) bool {
	r := m.GetRenewal()
	return r != nil && string(r.GetAttempt()) == string(p.id[:])
}

func (k *keptPart) close(why string) {
	if k == nil {
		return
	}
	k.p.w.log.Info("releasing kept ranks", "attempt", k.attempt, "why", why)
	for _, s := range k.stages {
		k.free(s)
	}
	k.set.Close()
}

// keep takes the stages of an ended part that outlive it, for the next attempt.
func (w *membership) keep(p *part) {
	k := &keptPart{attempt: p.id, digest: p.digest, stages: p.stages.Kept(), set: p.set, p: p}
	if len(k.stages) == 0 {
		return
	}
	p.lent = true // a beat may still ask the part for its memory
	w.mu.Lock()
	keeps := !p.ended
	var old *keptPart
	if keeps {
		old, w.kept = w.kept, k
	}
	w.mu.Unlock()
	old.close("a newer attempt was kept")
	if !keeps {
		k.close("the part has ended")
	}
}

// dropKept closes what the membership keeps, if anything. Beats tell the coordinator, as those of a part that gives up. w.mu is held.
func (w *membership) dropKept(why string) {
	if k := w.kept; k != nil {
		w.kept, w.gaveUp[k.attempt] = nil, why
		w.running.Go(func() { k.close(why) }) // ends by itself
	}
}

// takeKept returns what this worker has kept of the attempt that an assignment continues; nil: it gets its ranks from elsewhere. Anything
// else that was kept is closed.
func (w *membership) takeKept(m *wire.Assign) (*keptPart, error) {
	w.mu.Lock()
	k := w.kept
	w.kept = nil
	w.mu.Unlock()
	r := m.GetRenewal()
	var ranks []int32 // that are kept
	for i, rank := range m.GetRanks() {
		if c := r.GetCopies(); len(c) == 0 || i < len(c) && c[i] < 0 {
			ranks = append(ranks, rank)
		}
	}
	if r == nil || len(ranks) == 0 {
		k.close("another attempt has begun")
		return nil, nil
	}
	switch {
	case k == nil:
		return nil, fmt.Errorf("%w: this worker has kept no ranks of attempt %x", errUnkept, r.GetAttempt())
	case string(k.attempt[:]) != string(r.GetAttempt()) || k.digest != string(m.GetDigest()) || !k.has(ranks):
		k.close("they are not those that the coordinator wants")
		return nil, fmt.Errorf("%w: this worker has kept other ranks than %d of attempt %x", errUnkept, ranks, r.GetAttempt())
	}
	k.only(ranks)
	return k, nil
}

// has reports whether it holds these ranks.
func (k *keptPart) has(ranks []int32) bool {
	return !slices.ContainsFunc(ranks, func(rank int32) bool {
		return !slices.ContainsFunc(k.stages, func(s *actors.Kept) bool { return s.Rank == int(rank) })
	})
}

// only closes what it holds of other ranks: the coordinator may not know that they had all of their state.
func (k *keptPart) only(ranks []int32) {
	k.stages = slices.DeleteFunc(k.stages, func(s *actors.Kept) bool {
		other := !slices.Contains(ranks, int32(s.Rank))
		if other {
			k.free(s)
		}
		return other
	})
}

// without returns the ranks here, and those whose shadows are here, that are not among what was kept. The free memory lacks what was kept
// already. shadows has by rank the rank that holds its shadow.
func (k *keptPart) without(ranks, shadows []int) (own, shadowed []int) {
	var kept, keptShadows []int
	if k != nil {
		for _, s := range k.stages {
			kept, keptShadows = append(kept, s.Rank), append(keptShadows, s.Shadows()...)
		}
	}
	for _, rank := range ranks {
		if !slices.Contains(kept, rank) {
			own = append(own, rank)
		}
	}
	for rank, holder := range shadows {
		if slices.Contains(ranks, holder) && !slices.Contains(keptShadows, rank) {
			shadowed = append(shadowed, rank)
		}
	}
	return own, shadowed
}

func (k *keptPart) free(s *actors.Kept) {
	if err := s.Close(); err != nil {
		k.p.w.log.Error("close a stage", "rank", s.Rank, "err", err)
	}
}

// sources returns where the ranks of this worker get their state, in an attempt that continues another one: from ranks of other processes
// that have the same, or from their shadows there.
func (p *part) sources(r *wire.Renewal, pl *plan.Plan, ranks []int, hosts []string, shadows []int) (*actors.WeightReader,
	func(rank int) stages.Source, error) {
	copies := r.GetCopies()
	if len(copies) != len(ranks) {
		return nil, nil, fmt.Errorf("the coordinator names %d ranks to copy from for ranks %d; want one for each", len(copies), ranks)
	}
	if err := pl.CheckRenewal(); err != nil {
		return nil, nil, err
	}
	weights, of := actors.NewWeightReader(), make(map[int]stages.Source)
	for i, rank := range ranks {
		from := int(copies[i])
		switch {
		case from == -1: // kept
			continue
		case from < 0 || from >= len(hosts) || from == rank:
			return nil, nil, fmt.Errorf("rank %d cannot copy its state from rank %d of %d", rank, from, len(hosts))
		case hosts[from] == "": // a rank that this worker has kept, or its shadow, which it has kept
			if i := slices.Index(ranks, from); i < 0 || copies[i] != -1 {
				return nil, nil, fmt.Errorf("rank %d cannot copy its state from rank %d, which this worker has not kept", rank, from)
			}
			if of[rank] = weights.OfShadow(from, rank); pl.Replicated() {
				of[rank] = weights.Of(from, rank)
			}
		case slices.Contains(pl.Twins(rank), from):
			of[rank] = weights.Of(from, rank)
		case len(shadows) > 0 && shadows[rank] == from:
			of[rank] = weights.OfShadow(from, rank)
		default:
			return nil, nil, fmt.Errorf("rank %d cannot copy its state from rank %d, which has other weights and not its shadow", rank,
				from)
		}
	}
	return weights, func(rank int) stages.Source { return of[rank] }, nil
}

// withFrozen reads frozen weights from elsewhere than the trained ones.
func withFrozen(trained func(rank int) stages.Source, frozen stages.Source) func(rank int) stages.Source {
	return func(rank int) stages.Source {
		from := trained(rank)
		return func(p *stages.Param, part string, dst []float32) error {
			if p.Frozen {
				return frozen(p, part, dst)
			}
			return from(p, part, dst)
		}
	}
}

// shadowsOf returns the places of the ranks' shadows from an assignment, checked.
func (p *part) shadowsOf(m *wire.Assign, pl *plan.Plan) (at []int, err error) {
	var processes []string
	for _, id := range p.processes {
		processes = append(processes, id.String())
	}
	for _, h := range m.GetShadows() {
		at = append(at, int(h))
	}
	return at, pl.CheckPlaces(at, processes)
}

// target is the step from which a renewed attempt continues.
func target(r *wire.Renewal) actors.Target {
	u := r.GetUpdate()
	return actors.Target{Step: r.GetStep(), Skip: r.GetSkip(), Kept: r.GetKept(),
		Update: stages.Update{Count: int(u.GetCount()), LR: u.GetLr(), GradScale: u.GetGradScale()}}
}
