package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/arrange"
	"github.com/troupe-ml/troupe/cluster/internal/beat"
)

// sayTime is how long a run waits for workers before it says what for; then it says so again
// after twice the time each.
const sayTime = 5 * time.Second

// patience tells when it is time to say what is waited for.
type patience struct {
	began time.Time
	timer *time.Timer
	next  time.Duration
}

func newPatience() *patience {
	return &patience{began: time.Now(), timer: time.NewTimer(sayTime), next: sayTime}
}

// waited is for how long that is, and sets the timer again. It is called when that has fired.
func (p *patience) waited() time.Duration {
	p.next *= 2
	p.timer.Reset(p.next)
	return time.Since(p.began)
}

func (p *patience) stop() { p.timer.Stop() }

// tellWaiting says what the run waits for.
func (h *hosts) tellWaiting(text string) {
	h.log.Warn("a run waits", "for", text)
	if h.notice != nil {
		h.notice(text)
	}
}

// mostSeen bounds the workers that a message names.
const mostSeen = 8

// seen names the workers that this process knows of, with what keeps each from a run; "": there are none. mu is held.
func (h *hosts) seen(gpu bool) string {
	return describeWorkers(h.beats.Members(), h.workers, h.free(), h.unreachable.list(time.Now()), gpu)
}

// describeWorkers says of those that beats are heard of, of those on the list of members, and of those that ask to join and
// can't be reached, why a run does not get them.
func describeWorkers(heard []beat.Member, listed map[uuid.UUID]*workerState, free []*workerState, far []UnreachableWorker,
	gpu bool) string {
	var all []string
	for _, w := range far {
		all = append(all, fmt.Sprintf("%s is refused: %s", w.Name, w.Error))
	}
	beats := make(map[uuid.UUID]bool)
	for _, m := range heard {
		if beats[m.ID] = true; listed[m.ID] == nil {
			all = append(all, m.Name+" is heard, but not on the list of members")
		}
	}
	for id, w := range listed {
		why := "is free"
		switch {
		case !beats[id]:
			why = "is on the list of members, but not heard"
		case w.attempt != nil && !w.attempt.ended.IsZero():
			why = fmt.Sprintf("is being given back by run %q for %.1f s", w.attempt.cfg.Run.Name, time.Since(w.attempt.ended).Seconds())
		case w.attempt != nil:
			why = fmt.Sprintf("has ranks of run %q", w.attempt.cfg.Run.Name)
		case !slices.Contains(free, w):
			why = "could not reach a worker that is free, and is not used beside it for a while"
		case gpu && len(withGPUs([]*workerState{w})) == 0:
			why = "has no GPU"
		}
		all = append(all, w.Name+" "+why)
	}
	slices.Sort(all)
	if more := len(all) - mostSeen; more > 0 {
		all = append(all[:mostSeen], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// namesOf lists shares with their ranks, of many the first ones.
func namesOf(all []*share) string {
	var names []string
	for i, s := range all {
		if i == mostSeen {
			names = append(names, fmt.Sprintf("%d more", len(all)-i))
			break
		}
		names = append(names, fmt.Sprintf("%s (ranks %s)", s.Name, arrange.ListRanks(s.ranks)))
	}
	return strings.Join(names, ", ")
}
