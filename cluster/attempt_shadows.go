package cluster

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/plan"
)

// wantsShadows returns the memory of each rank's shadow, in bytes, if the ranks may have some; nil: they have none, for the reason in
// a.shadows. With cluster.shadow = "on" it is an error if they cannot.
func (a *attempt) wantsShadows(as plan.Assignment) ([]int64, error) {
	mode := as.Config.Cluster.Shadow
	if mode == plan.ShadowOff {
		a.shadows = plan.Shadows{Why: `cluster.shadow is "off"`}
		return nil, nil
	}
	if err := as.Plan.CheckShadows(); err != nil {
		a.shadows = plan.Shadows{Why: err.Error()}
		if mode == plan.ShadowOn && !as.Plan.Replicated() {
			return nil, as.Config.Errorf("cluster.shadow", "%w", err)
		}
		return nil, nil
	}
	return as.Plan.ShadowBytes()
}

// placeShadows chooses where the shadows are, after the ranks have their workers. bytes is the memory of each.
func (a *attempt) placeShadows(as plan.Assignment, bytes []int64) error {
	if bytes == nil {
		return nil
	}
	sites, cores := a.sites(as.Plan)
	s, auto := as.Plan.PlaceShadows(sites, a.shadows.At), as.Config.Cluster.Shadow == plan.ShadowAuto
	var err error
	if s.Any() && a.renewal == nil { // a renewal keeps the shadows that there are: they have the state of the lost ranks
		if err = a.shadowsFit(as, s, bytes); err == nil && auto {
			err = as.Plan.CheckShadowCost(s, sites, cores)
		}
	}
	switch {
	case err != nil && auto:
		s = plan.Shadows{Why: err.Error()}
	case err != nil:
		return err
	case !auto && s.Why != "" && a.apart == "":
		a.apart = "cluster.shadow is on, but some ranks have no shadow: " + s.Why
	}
	if a.shadows = s; s.Why != "" {
		a.c.log.Info("some ranks have no shadow", "run", as.Run, "why", s.Why)
	}
	return nil
}

// sites returns where the ranks compute, and the cores of each one's worker.
func (a *attempt) sites(p *plan.Plan) (sites []plan.Site, cores []int) {
	sites, cores = make([]plan.Site, p.Grid().World()), make([]int, p.Grid().World())
	for _, s := range a.shares {
		for _, rank := range s.ranks {
			sites[rank], cores[rank] = plan.Site{Process: s.ID.String(), Host: s.host()}, int(s.Offer.GetCores())
		}
	}
	return sites, cores
}

// shadowsFit returns an error if a worker has no memory for its ranks with the shadows that they hold.
func (a *attempt) shadowsFit(as plan.Assignment, s plan.Shadows, bytes []int64) error {
	need, err := as.Plan.RankBytes()
	if err != nil {
		return err
	}
	addShadows(need, s, bytes)
	onHost := make(map[string]int64)
	for _, x := range a.busy() {
		onHost[x.host()]++
	}
	limit := int64(as.Config.Device.MemoryGiB * (1 << 30))
	for _, x := range a.busy() {
		var sum int64
		for _, rank := range x.ranks {
			if sum += need[rank]; limit > 0 && need[rank] > limit {
				return fmt.Errorf("%w: rank %d needs %.1f GiB with the shadow that it holds, but device.memory_gib is %g", plan.ErrMemory,
					rank, gib(need[rank]), as.Config.Device.MemoryGiB)
			}
		}
		if has := x.Offer.GetMemoryBytes() / onHost[x.host()]; has > 0 && sum > has { // 0: unknown
			return fmt.Errorf("%w: worker %s needs %.1f GiB with the shadows of other ranks, but has %.1f GiB", plan.ErrNoRoom, x.Name,
				gib(sum), gib(has))
		}
	}
	return nil
}

// addShadows adds to the memory of each rank that of the shadows that it holds.
func addShadows(need []int64, s plan.Shadows, bytes []int64) {
	for rank := range bytes {
		if h := s.Of(rank); h >= 0 {
			need[h] += bytes[rank]
		}
	}
}

func gib(bytes int64) float64 { return float64(bytes) / (1 << 30) }

// rankBytes returns the host memory of each rank, with the shadows that it holds.
func (a *attempt) rankBytes(p *plan.Plan) ([]int64, error) {
	need, err := p.RankBytes()
	if err != nil || !a.shadows.Any() {
		return need, err
	}
	bytes, err := p.ShadowBytes()
	if err != nil {
		return nil, err
	}
	addShadows(need, a.shadows, bytes)
	return need, nil
}
