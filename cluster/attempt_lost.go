package cluster

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// unreachableSilences is how many silences a message to a live process may wait to be sent. TCP
// doubles its pause before each retransmission, so after a break shorter than the silence it
// recovers within two silences.
const unreachableSilences = 3

// lost ends the attempt because one of its workers failed or left.
func (a *attempt) lost(m beat.Member, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.loses(m, why)
}

// loses is lost. mu is held.
func (a *attempt) loses(m beat.Member, why error) {
	for _, s := range a.shares {
		if s.ID != m.ID || s.lost && errors.Is(why, errLeaves) { // it has failed meanwhile, or leaves already
			continue
		}
		err := a.lostError(s, why)
		s.lost, s.why = true, err
		if a.err == nil {
			a.err = err
			a.keepStep()
			close(a.gone)
		}
		select {
		case a.answers <- answer{from: m.ID, lost: true}:
		default: // nobody waits for answers any more
		}
		if a.actors != nil {
			tellLost(a.actors, s)
		} else if len(s.ranks) > 0 {
			then := "the run uses other workers"
			if a.renewal != nil {
				then = "its ranks are replaced next"
			}
			a.tellWaiting(fmt.Sprintf("%v; %s", err, then))
		}
	}
}

// tellLost ends a run's attempt because a worker has failed or leaves.
func tellLost(r *actors.Run, s *share) {
	if errors.Is(s.why, errLeaves) {
		r.Leave(s.ranks, s.why)
	} else {
		r.Lost(s.ranks, s.why)
	}
}

// hasFailed reports whether a worker is lost already, and not only about to leave.
func (a *attempt) hasFailed(worker uuid.UUID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.shareOf(worker)
	return s != nil && s.lost && !s.leaves()
}

func (a *attempt) lostError(s *share, why error) error {
	return &plan.LostError{Worker: s.Name + " at " + s.Address, Ranks: s.ranks, Doing: s.doing, Err: why, Leaves: errors.Is(why, errLeaves),
		At: time.Now()}
}

// unreachable handles a worker's report that it can't reach another process, although both can
// reach the coordinator. The attempt ends, and the next one uses only one of the two.
func (a *attempt) unreachable(m beat.Member, far []*wire.Unreachable) {
	a.cuts.note(m, far)
	for _, u := range far {
		id, err := uuid.FromBytes(u.GetIncarnation())
		if err != nil || id != a.c.id && !a.busyAt(id) {
			continue
		}
		quiet := time.Duration(u.GetForS() * float64(time.Second))
		if id == a.c.id { // it could not reach a coordinator that was frozen
			if quiet = a.c.awake.Of(quiet); quiet < a.c.cfg.Silence {
				continue
			}
		}
		why := fmt.Errorf("it has not reached %s for %.1f s", a.name(id), quiet.Seconds())
		if quiet < unreachableSilences*a.c.cfg.Silence {
			a.stalled(m.Name, quiet, why)
			continue
		}
		if id == a.c.id {
			a.c.beats.Expel(m.ID, why)
			return
		}
		a.c.mu.Lock()
		a.c.apart[[2]uuid.UUID{m.ID, id}] = time.Now().Add(apartTime)
		a.c.mu.Unlock()
		a.lost(m, why)
	}
}

// well notes that all links from and to a worker work.
func (a *attempt) well(worker string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.told, worker)
}

// stalled reports, once for each worker until its links work again, that the run waits for a
// broken link.
//
// It comes with the first beat after the silence, and so within beat.beatMost and a round trip.
// The silence counts from the first waiting message or the last acknowledgment.
func (a *attempt) stalled(worker string, quiet time.Duration, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.told[worker] {
		return
	}
	a.told[worker] = true
	text := fmt.Sprintf("%s answers, but %v", worker, why)
	if a.actors == nil { // the attempt has not begun
		a.tellWaiting(text)
		return
	}
	a.actors.Publish(troupe.WarningEvent{Text: text})
	a.actors.Stalled(quiet)
}
