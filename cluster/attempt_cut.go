package cluster

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// cuts are an attempt's links on which no message arrives. They have their own lock, because a caller that reads a
// run's status may hold the attempt's lock.
type cuts struct {
	c     *Coordinator
	names map[uuid.UUID]string // of the attempt's workers

	mu   sync.Mutex
	from map[uuid.UUID]cutFrom // by the worker that sends
}

// cutFrom lists the processes that a worker can't reach, from its last beat.
type cutFrom struct {
	heard time.Time
	to    []*wire.Unreachable
}

func newCuts(c *Coordinator, workers []*workerState) *cuts {
	u := &cuts{c: c, names: make(map[uuid.UUID]string), from: make(map[uuid.UUID]cutFrom)}
	for _, w := range workers {
		u.names[w.ID] = w.Name
	}
	return u
}

// mostFarS is the longest time, in seconds, that a worker may report for a broken link.
const mostFarS = 1e9

// note stores the processes that a worker can't reach, from its beat.
func (u *cuts) note(m beat.Member, far []*wire.Unreachable) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(far) == 0 {
		delete(u.from, m.ID)
		return
	}
	known := make(map[uuid.UUID]*wire.Unreachable) // a beat may name a process several times
	for _, f := range far {
		to, _ := uuid.FromBytes(f.GetIncarnation()) // an invalid one gives uuid.Nil, which no process has
		if s := f.GetForS(); (u.names[to] != "" || to == u.c.id) && s >= 0 && s <= mostFarS {
			known[to] = f
		}
	}
	u.from[m.ID] = cutFrom{time.Now(), slices.Collect(maps.Values(known))}
}

// links returns the broken links that workers report in their beats, and those on which the coordinator's messages wait.
func (u *cuts) links() (all []event.CutLink) {
	for id, name := range u.names {
		if quiet := u.c.mesh.Quiet(id); quiet >= u.c.cfg.Silence {
			all = append(all, event.CutLink{To: name, For: quiet})
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, from := range u.from {
		for _, far := range from.to {
			to, _ := uuid.FromBytes(far.GetIncarnation())
			all = append(all, event.CutLink{From: u.names[id], To: u.names[to],
				For: time.Duration(far.GetForS()*float64(time.Second)) + time.Since(from.heard)})
		}
	}
	slices.SortFunc(all, func(a, b event.CutLink) int { return strings.Compare(a.From+" "+a.To, b.From+" "+b.To) })
	return all
}
