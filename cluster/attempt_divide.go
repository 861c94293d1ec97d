package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/cluster/internal/arrange"
	"github.com/troupe-ml/troupe/internal/plan"
)

// divide divides the ranks among the chosen workers and chooses each rank's device: as the
// config says, or by memory and cores.
func (a *attempt) divide(as plan.Assignment) error {
	cpu, gpu := kindsOf(as.Config)
	shadows, err := a.wantsShadows(as)
	if err != nil {
		return err
	}
	if gpu && !cpu && len(as.Config.Cluster.Place) == 0 {
		if err := a.divideGPUs(as); err != nil {
			return err
		}
	} else if err := a.divideWithShadows(as, shadows); err != nil {
		return err
	} else if gpu {
		for _, s := range a.shares {
			if err := s.onGPUs(as.Config); err != nil {
				return err
			}
		}
	}
	a.freeIdle()
	if shadows != nil {
		a.warnShadows(as)
	}
	return nil
}

// give sets the workers' ranks, in the order of the shares.
func (a *attempt) give(parts [][]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, s := range a.shares {
		s.ranks = parts[i]
	}
}

// freeIdle frees the workers that got no ranks, so that other runs may use them.
func (a *attempt) freeIdle() {
	var idle []string
	for _, s := range a.shares {
		if len(s.ranks) > 0 {
			continue
		}
		if leaves := a.c.free(s.ID, a); !leaves {
			idle = append(idle, s.Name)
		}
	}
	if len(idle) > 0 {
		a.apart = fmt.Sprintf("%s got no ranks, because each tensor group stays on one host; to use all workers, lower parallel.tensor, "+
			"or use more stages or replicas", strings.Join(idle, ", "))
	}
}

// divideAgain divides the ranks among the workers as without shadows. A worker that got no ranks before may get some if it is still free.
// One that leaves gets some only if the others have no room: it would leave when the attempt has begun.
func (a *attempt) divideAgain(as plan.Assignment) error {
	stay, all := &attempt{c: a.c, cfg: a.cfg}, &attempt{c: a.c, cfg: a.cfg}
	a.c.mu.Lock()
	free := a.c.freeFor(a)
	for _, s := range a.shares {
		w := a.c.workers[s.ID]
		if slices.Contains(free, w) {
			w.attempt = a
		}
		if w == nil || w.attempt != a {
			continue
		}
		all.shares = append(all.shares, &share{Member: s.Member})
		if !w.leaving {
			stay.shares = append(stay.shares, &share{Member: s.Member})
		}
	}
	a.c.mu.Unlock()
	b := stay
	err := b.divideHosts(as, nil)
	if err != nil && len(all.shares) > len(stay.shares) {
		b = all
		err = b.divideHosts(as, nil)
	}
	if err != nil {
		return err
	}
	var parts [][]int
	for _, s := range a.shares {
		parts = append(parts, b.ranksOf(s.ID))
	}
	a.give(parts)
	a.apart = b.apart
	a.freeIdle()
	return nil
}

// divideWithShadows divides the ranks by the memory of their hosts with that of their shadows, and places those. If there are none then,
// the ranks need no room for them.
func (a *attempt) divideWithShadows(as plan.Assignment, shadows []int64) error {
	if err := a.divideHosts(as, shadows); err != nil || shadows == nil {
		return err
	}
	if err := a.placeShadows(as); err != nil || a.shadows.Any() {
		return err
	}
	return a.divideHosts(as, nil)
}

// divideHosts divides the ranks by the memory of their hosts, with that of their shadows, if they may have some and there is room.
func (a *attempt) divideHosts(as plan.Assignment, shadows []int64) error {
	bytes, err := as.Plan.RankBytes(plan.Shadows{})
	if err != nil {
		return err
	}
	sameHost := make(map[string]int64)
	var hosts []string
	for _, s := range a.shares {
		sameHost[s.host()]++
		hosts = append(hosts, s.host())
	}
	if place := as.Config.Cluster.Place; len(place) > 0 {
		parts := make([][]int, len(a.shares))
		for rank, name := range place {
			i := slices.IndexFunc(a.shares, func(s *share) bool { return s.Name == name })
			if i < 0 {
				return fmt.Errorf("%w: cluster.place names worker %q for rank %d, and it is not there any more", plan.ErrNoRoom, name, rank)
			}
			parts[i] = append(parts[i], rank)
		}
		a.give(parts)
		a.apart = arrange.Spread(as.Plan.Grid(), parts, hosts, bytes)
		return nil
	}
	var workers []arrange.Capacity
	for _, s := range a.shares {
		workers = append(workers, arrange.Capacity{Name: s.Name, MemoryBytes: s.Offer.GetMemoryBytes() / sameHost[s.host()],
			Cores: int(s.Offer.GetCores())})
	}
	ranks := func(bytes []int64) ([][]int, string, error) {
		parts, apart, err := arrange.Ranks(as.Plan.Grid(), bytes, as.Plan.RankFLOPs(), workers, hosts)
		if err != nil {
			return nil, "", err
		}
		sites, _ := a.sitesOf(as.Plan, parts)
		shared, err := as.Plan.LaneBytes(sites, plan.Shadows{})
		if err != nil || slices.Max(shared) == 0 {
			return parts, apart, err
		}
		// Where ranks are decides what processes of a host share.
		for rank := range shared {
			shared[rank] += bytes[rank]
		}
		return arrange.Ranks(as.Plan.Grid(), shared, as.Plan.RankFLOPs(), workers, hosts)
	}
	with := slices.Clone(bytes)
	for rank := range shadows {
		with[rank] += shadows[rank] // each rank brings one, and holds another
	}
	parts, apart, err := ranks(with)
	if auto := as.Config.Cluster.Shadow == plan.ShadowAuto; shadows != nil && (err != nil || apart != "" && auto) {
		// Without room for shadows, groups may be on one host each. placeShadows says why there are none.
		if plain, far, failed := ranks(bytes); err != nil || failed == nil && far == "" {
			parts, apart, err = plain, far, failed
		}
	}
	if err != nil {
		return err
	}
	a.give(parts)
	a.apart = apart
	return nil
}
