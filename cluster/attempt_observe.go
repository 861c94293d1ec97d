package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Watch reports the workers' failures and statuses to the run from now on.
func (a *attempt) Watch(r *actors.Run) {
	defer a.leave() // workers that were told to stop while the attempt started
	a.mu.Lock()
	defer a.mu.Unlock()
	a.actors = r
	if a.apart != "" {
		r.Publish(troupe.WarningEvent{Text: a.apart})
	}
	for _, s := range r.Status().Actors { // until their first beats
		for _, part := range a.shares {
			if slices.Contains(part.ranks, s.Rank) {
				s.Host, s.Heard = part.Name, part.Heard
				r.Observe(s)
			}
		}
	}
	for _, s := range a.shares {
		if s.lost && len(s.ranks) > 0 {
			tellLost(r, s)
		}
	}
}

// observe handles the status of a worker's stages and converts its times to this process's clock.
func (a *attempt) observe(m beat.Member, reply *wire.StatusReply) {
	if !a.is(reply.GetAttempt()) {
		return
	}
	if why := reply.GetGaveUp(); why != "" { // it stays a member and can get ranks again
		if !a.hasFailed(m.ID) { // each beat says so until the ranks are released
			a.lost(m, fmt.Errorf("it released its ranks: %s", words.Cut(why, apiwire.LimitErrorBytes)))
		}
		return
	}
	defer a.rebalance()
	a.mu.Lock()
	defer a.mu.Unlock()
	var doing []string
	for _, w := range reply.GetActors() {
		s, err := actors.UnpackSnapshot(w)
		if err == nil && !slices.Contains(a.ranksOf(m.ID), s.Rank) {
			err = fmt.Errorf("it names rank %d, which the worker does not have", s.Rank)
		}
		if err != nil {
			a.c.mesh.Refuse(m.Name, fmt.Errorf("status: %w", err))
			continue
		}
		s.Since = m.Heard.Add(s.Since.Sub(time.Unix(0, reply.GetTimeNs()))) // the age is right even if the clocks differ
		s.Host, s.Heard = m.Name, m.Heard
		doing = append(doing, s.Describe())
		if a.actors != nil {
			a.actors.Observe(s)
		}
	}
	for _, s := range a.shares {
		if s.ID != m.ID {
			continue
		}
		s.doing = strings.Join(doing, "; ")
		if err := a.observeRecorded(s, m.Offset, reply); err != nil {
			a.c.mesh.Refuse(m.Name, err)
		}
	}
}

// observeRecorded handles the actions that a worker's stages have finished, and the memory that they use. mu is held.
func (a *attempt) observeRecorded(s *share, offset time.Duration, reply *wire.StatusReply) error {
	mine := make(map[int32]bool, len(s.ranks))
	for _, rank := range s.ranks {
		mine[apiwire.Small(rank)] = true
	}
	left := limitBeatActions
	for _, w := range reply.GetActions() {
		if !mine[w.GetRank()] || w.GetFirst() < 0 || w.GetFirst() > apiwire.LimitTraceActions || w.GetPhase() > uint32(event.Eval) {
			return fmt.Errorf("invalid actions of rank %d, phase %d, from number %d", w.GetRank(), w.GetPhase(), w.GetFirst())
		}
		times, err := actors.UnpackActions(w.GetTimes(), left)
		if err != nil {
			return err
		}
		left -= event.Size(times)
		for i := range times {
			times[i].Move(-offset)
		}
		if a.actors != nil {
			a.actors.ObserveActions(actors.RankActions{Rank: int(w.GetRank()), Step: w.GetStep(), Order: w.GetOrder(),
				Phase: event.Phase(w.GetPhase()), First: int(w.GetFirst()), Times: times})
		}
	}
	for _, w := range reply.GetMemory() {
		if mine[w.GetRank()] {
			a.memory[int(w.GetRank())] = w.GetBytes()
		}
	}
	return nil
}

// rankMemory returns the peak tensor memory of each rank in bytes; 0: not reported yet.
func (a *attempt) rankMemory(ranks int) []int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]int64, ranks)
	for rank, n := range a.memory {
		if rank < ranks {
			all[rank] = n
		}
	}
	return all
}

// clock returns the offset of a rank's worker's clock from this process's, estimated from its latest beats.
func (a *attempt) clock(rank int) event.Clock {
	for _, s := range a.shares {
		if slices.Contains(s.ranks, rank) {
			m := a.c.beats.Member(s.ID)
			return event.Clock{Process: s.Name, Ahead: m.Offset, Within: (m.RoundTrip + 1) / 2}
		}
	}
	return event.Clock{}
}
