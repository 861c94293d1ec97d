package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// shadowLinksTime bounds how long the start of a run waits for the links to the shadows of other hosts.
const shadowLinksTime = 5 * time.Second

// dropDistantShadows measures the links between hosts that the gradients for shadows take, and divides the ranks again, without shadows, if
// they would make a step too slow. The ranks were divided by what a fast network needs, since links are measured between chosen workers.
func (a *attempt) dropDistantShadows(ctx context.Context, as plan.Assignment) error {
	if !a.shadows.Any() || as.Config.Cluster.Shadow != plan.ShadowAuto {
		return nil
	}
	sites, cores := a.sites(as.Plan)
	rates, err := a.shadowRates(ctx, as.Plan, sites)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil {
		err = as.Plan.CheckShadowCost(a.shadows, sites, cores, rates)
	}
	if err == nil {
		return nil
	}
	a.noShadows(err)
	return a.divideAgain(as)
}

// shadowRates returns the rate of the link from each rank to the holder of its shadow, in bytes/s, where that is on another host; else 0.
// All workers send at once, as they do at the end of a step.
func (a *attempt) shadowRates(ctx context.Context, p *plan.Plan, sites []plan.Site) ([]float64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, shadowLinksTime,
		fmt.Errorf("the links to shadows on other hosts are too slow: measuring them took more than %v", shadowLinksTime))
	defer cancel()
	of := a.byRank(p)
	busy := a.busy()
	links, err := eachOf(busy, func(i int) ([]*wire.Link, error) {
		var to []*share
		for _, rank := range busy[i].ranks {
			if h := a.shadows.Of(rank); h >= 0 && sites[h].Host != sites[rank].Host && !slices.Contains(to, of[h]) {
				to = append(to, of[h])
			}
		}
		return a.linksFrom(ctx, busy[i], to)
	})
	if err != nil {
		return nil, err
	}
	found, rates := byEnds(busy, links), make([]float64, len(sites))
	for rank := range rates {
		if h := a.shadows.Of(rank); h >= 0 {
			rates[rank] = found[[2]string{of[rank].Name, of[h].Name}].GetBytesPerS()
		}
	}
	return rates, nil
}
