package cluster

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
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

// placeShadows chooses where the shadows are, after the ranks have their workers.
func (a *attempt) placeShadows(as plan.Assignment) error {
	sites, cores := a.sites(as.Plan)
	s, auto := as.Plan.PlaceShadows(sites, a.shadows.At), as.Config.Cluster.Shadow == plan.ShadowAuto
	var err error
	if s.Any() && a.renewal == nil { // a renewal keeps the shadows that there are: they have the state of the lost ranks
		if err = a.shadowsFit(as, s); err == nil && auto {
			err = as.Plan.CheckShadowCost(s, sites, cores, nil)
		}
	}
	if err != nil && !auto {
		return err
	}
	if err != nil {
		s = plan.Shadows{Why: err.Error()}
	}
	if a.shadows = s; s.Why != "" {
		a.c.log.Info("some ranks have no shadow", "run", as.Run, "why", s.Why)
	}
	return nil
}

// mayDropShadows reports whether the attempt can work without its shadows. One that continues another needs those that there are.
func (a *attempt) mayDropShadows(as plan.Assignment) bool {
	return a.renewal == nil && a.shadows.Any() && as.Config.Cluster.Shadow == plan.ShadowAuto
}

// dropShadows divides the ranks again and lets them be assigned again, without shadows, after a worker has refused them. For the workers
// that is another attempt, after this one.
func (a *attempt) dropShadows(as plan.Assignment, why error) error {
	a.noShadows(why)
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	a.c.mu.Lock()
	a.c.generation++
	generation := a.c.generation
	a.c.mu.Unlock()
	was := a.id
	a.mu.Lock()
	a.id, a.generation = id, generation
	a.answers = make(chan answer, cap(a.answers)) // without those to the first assignment
	a.mu.Unlock()
	for _, s := range a.busy() { // after the id has changed, so that their answers do not free them
		a.c.release(s, &wire.Release{Attempt: was[:]})
	}
	if err := a.divideAgain(as); err != nil {
		return err
	}
	if a.apart != "" {
		a.apart += "; "
	}
	a.apart += "the ranks have no shadows: " + why.Error()
	return nil
}

// noShadows decides that the ranks have no shadows.
func (a *attempt) noShadows(why error) {
	a.shadows = plan.Shadows{Why: why.Error()}
	a.c.log.Info("the ranks have no shadows", "run", a.run, "why", why)
}

// warnShadows warns of ranks without a shadow with cluster.shadow = "on", unless there is a warning already.
func (a *attempt) warnShadows(as plan.Assignment) {
	if as.Config.Cluster.Shadow == plan.ShadowOn && a.shadows.Why != "" && a.apart == "" {
		a.apart = "cluster.shadow is on, but some ranks have no shadow: " + a.shadows.Why
	}
}

// byRank returns the share of each rank.
func (a *attempt) byRank(p *plan.Plan) []*share {
	of := make([]*share, p.Grid().World())
	for _, s := range a.shares {
		for _, rank := range s.ranks {
			of[rank] = s
		}
	}
	return of
}

// sites returns where the ranks compute, and the cores of each one's worker.
func (a *attempt) sites(p *plan.Plan) (sites []plan.Site, cores []int) {
	var parts [][]int
	for _, s := range a.shares {
		parts = append(parts, s.ranks)
	}
	return a.sitesOf(p, parts)
}

// sitesOf is sites for ranks that are not given yet; parts are those of each worker.
func (a *attempt) sitesOf(p *plan.Plan, parts [][]int) (sites []plan.Site, cores []int) {
	sites, cores = make([]plan.Site, p.Grid().World()), make([]int, p.Grid().World())
	for i, s := range a.shares {
		for _, rank := range parts[i] {
			sites[rank], cores[rank] = plan.Site{Process: s.ID.String(), Host: s.host()}, int(s.Offer.GetCores())
		}
	}
	return sites, cores
}

// hostBytes returns the memory that each rank needs on its host, with the shadows that it holds and what processes of a host share.
func (a *attempt) hostBytes(p *plan.Plan, shadows plan.Shadows) ([]int64, error) {
	bytes, err := p.RankBytes(shadows)
	if err != nil {
		return nil, err
	}
	sites, _ := a.sites(p)
	shared, err := p.LaneBytes(sites, shadows)
	for rank := range shared {
		bytes[rank] += shared[rank]
	}
	return bytes, err
}

// shadowsFit returns an error if a worker has no memory for its ranks with the shadows that they hold.
func (a *attempt) shadowsFit(as plan.Assignment, s plan.Shadows) error {
	if err := as.Plan.CheckLimit(s); err != nil {
		return err
	}
	need, err := a.hostBytes(as.Plan, s)
	if err != nil {
		return err
	}
	onHost := make(map[string]int64)
	for _, x := range a.busy() {
		onHost[x.host()]++
	}
	for _, x := range a.busy() {
		var sum int64
		for _, rank := range x.ranks {
			sum += need[rank]
		}
		if has := x.Offer.GetMemoryBytes() / onHost[x.host()]; has > 0 && sum > has { // 0: unknown
			return fmt.Errorf("%w: worker %s needs %.1f GiB with the shadows of other ranks, but has %.1f GiB", plan.ErrNoRoom, x.Name,
				gib(sum), gib(has))
		}
	}
	return nil
}

func gib(bytes int64) float64 { return float64(bytes) / (1 << 30) }
