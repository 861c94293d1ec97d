package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/arrange"
	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/internal/base/clock"
)

// sayTime is how long a run waits before it says what for. It repeats that after pauses that double
// each time.
const sayTime = 5 * time.Second

// patience says when it is time to report what the run waits for.
type patience struct {
	awake *clock.Awake
	began time.Time
	timer *time.Timer
	next  time.Duration
}

func newPatience(awake *clock.Awake) *patience {
	return &patience{awake: awake, began: time.Now(), timer: time.NewTimer(sayTime), next: sayTime}
}

// waited returns the time awake that was waited so far, and sets the timer again. The caller calls it when the timer has fired.
func (p *patience) waited() time.Duration {
	p.next *= 2
	p.timer.Reset(p.next)
	return p.awake.Since(p.began)
}

func (p *patience) stop() { p.timer.Stop() }

// tellWaiting logs what the run waits for, and tells the notice function.
func (h *hosts) tellWaiting(text string) {
	h.log.Warn("run waits", "for", text)
	if h.notice != nil {
		h.notice(text)
	}
}

// mostSeen bounds the workers that a message names.
const mostSeen = 8

// seen lists the workers that the coordinator knows, with why a run does not get each; "": it knows none. mu is held.
func (h *hosts) seen(gpu bool) string {
	return describeWorkers(h.beats.Members(), h.workers, h.free(), h.unreachable.list(time.Now()), gpu)
}

// describeWorkers says why a run does not get workers: those that send beats, those on the list of members, and those
// that try to join and can't be reached.
func describeWorkers(heard []beat.Member, listed map[uuid.UUID]*workerState, free []*workerState, far []UnreachableWorker,
	gpu bool) string {
	var all []string
	for _, w := range far {
		all = append(all, fmt.Sprintf("%s is refused: %s", w.Name, w.Error))
	}
	beats := make(map[uuid.UUID]bool)
	for _, m := range heard {
		if beats[m.ID] = true; listed[m.ID] == nil {
			all = append(all, m.Name+" sends beats, but is not on the list of members yet")
		}
	}
	for id, w := range listed {
		why := "is free"
		switch {
		case !beats[id]:
			why = "is on the list of members, but sends no beats"
		case w.attempt != nil && w.attempt.keeps(id):
			why = fmt.Sprintf("keeps the state of its ranks until run %q has it elsewhere", w.attempt.cfg.Run.Name)
		case w.attempt != nil && !w.attempt.ended.IsZero():
			why = fmt.Sprintf("is being released by run %q (for %.1f s so far)", w.attempt.cfg.Run.Name, time.Since(w.attempt.ended).Seconds())
		case w.attempt != nil:
			why = fmt.Sprintf("has ranks of run %q", w.attempt.cfg.Run.Name)
		case w.leaving:
			why = "was told to stop"
		case w.reserved != nil:
			why = fmt.Sprintf("is reserved for the ranks of a worker that leaves run %q", w.reserved.cfg.Run.Name)
		case !slices.Contains(free, w):
			why = fmt.Sprintf("could not reach a free worker, so the two are kept apart for %.0f s", apartTime.Seconds())
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

// namesOf lists workers with their ranks, up to mostSeen of them.
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
