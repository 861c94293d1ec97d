package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/telemetry/health"
	"github.com/troupe-ml/troupe/telemetry/process"
)

// Monitor shows what a worker does: see WorkerConfig.Monitor. Its zero value is ready to use.
type Monitor struct {
	mu     sync.Mutex
	worker *worker     // nil: Work does not run
	member *membership // nil: there is none now
	joins  uint64
}

// use says which worker and which membership the monitor shows.
func (m *Monitor) use(w *worker, member *membership) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.worker, m.member = w, member
}

// joined counts that the worker has become a member.
func (m *Monitor) joined() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joins++
}

// now returns the worker and its membership.
func (m *Monitor) now() (*worker, *membership, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.worker, m.member, m.joins
}

// State returns what the worker does, for metrics.
func (m *Monitor) State() process.Worker {
	w, member, joins := m.now()
	s := process.Worker{Joins: joins}
	if w != nil {
		s.Build = w.build
	}
	if member == nil {
		return s
	}
	s.Joined = member.isMember() == nil
	s.Heard = member.client.Quiet()
	s.Ranks = member.ranks()
	for _, t := range member.mesh.Traffic() {
		s.Lanes = append(s.Lanes, process.Lane{Peer: t.Peer, Sent: t.Sent, Received: t.Received})
	}
	return s
}

// Checks returns the checks of the worker's health: its actors answer, and it is a member of its cluster.
func (m *Monitor) Checks() []health.Check {
	return []health.Check{
		{Part: "actors", Live: true, Ask: func(ctx context.Context) (string, error) {
			w, member, _ := m.now()
			if w == nil || member == nil {
				return "the worker has not joined yet", nil // it has no actors
			}
			if err := pingActors(ctx, w.system); err != nil {
				return "", err
			}
			return "they answer", nil
		}},
		{Part: "cluster", Ask: func(context.Context) (string, error) {
			w, member, _ := m.now()
			if w == nil {
				return "", errors.New("the worker has ended, or has not started")
			}
			if member == nil {
				return "", fmt.Errorf("not a member of the cluster at %s: %w", w.cfg.Join, cmp.Or(w.obstacles.why(), errors.New("it is joining")))
			}
			if err := member.isMember(); err != nil {
				return "", err
			}
			return fmt.Sprintf("member of the cluster at %s with %s", w.cfg.Join, words.Plural(len(member.ranks()), "rank")), nil
		}},
	}
}

// isMember says why the worker is not a member of its cluster; nil: it is.
func (w *membership) isMember() error {
	w.mu.Lock()
	welcomed, silence, leaving := w.welcomed, w.silence, w.leaving
	w.mu.Unlock()
	quiet := w.client.Quiet()
	switch {
	case leaving:
		return fmt.Errorf("the worker is leaving the cluster at %s", w.cfg.Join)
	case !welcomed:
		return fmt.Errorf("not a member of the cluster at %s yet: %w", w.cfg.Join, cmp.Or(w.obstacles.why(), errors.New("it is joining")))
	case quiet >= silence:
		return fmt.Errorf("the coordinator at %s has been silent for %.1f s; the limit is %.1f s: %w", w.cfg.Join, quiet.Seconds(),
			silence.Seconds(), cmp.Or(w.obstacles.why(), errors.New("no connection has failed")))
	}
	return nil
}

// ranks returns the ranks that the worker computes, in order.
func (w *membership) ranks() []process.Rank {
	w.mu.Lock()
	defer w.mu.Unlock()
	memory := make(map[int]int64)
	for _, p := range w.parts {
		if p.stages == nil {
			continue
		}
		taken := p.set.TakenBy()
		for _, a := range p.stages.Status().Actors {
			memory[a.Rank] = taken[a.Actor]
		}
	}
	var all []process.Rank
	for rank, n := range memory {
		all = append(all, process.Rank{Rank: strconv.Itoa(rank), MemoryBytes: n})
	}
	slices.SortFunc(all, func(a, b process.Rank) int { return cmp.Or(len(a.Rank)-len(b.Rank), cmp.Compare(a.Rank, b.Rank)) })
	return all
}
