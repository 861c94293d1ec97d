package plan

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// A rank whose weights no other rank has can have a shadow: another process keeps its trained weights and optimizer state, gets its
// gradients in each step and makes the same update (package actors).

// The values of cluster.shadow.
const (
	ShadowAuto = "auto"
	ShadowOn   = "on"
	ShadowOff  = "off"
)

// Shadows says where the ranks' shadows are. The zero value has none.
type Shadows struct {
	At  []int  // by rank: the rank in whose process the shadow is; −1: it has none; nil: no rank has one
	Why string // why some have none; "": all have one
}

// Of returns the rank in whose process the shadow of a rank is; −1: it has none.
func (s Shadows) Of(rank int) int {
	if rank < 0 || rank >= len(s.At) {
		return -1
	}
	return s.At[rank]
}

// Any reports whether a rank has a shadow.
func (s Shadows) Any() bool { return slices.ContainsFunc(s.At, func(h int) bool { return h >= 0 }) }

// Site is where a rank computes.
type Site struct{ Process, Host string }

// CheckShadows returns why the ranks of the plan can have no shadows, or need none; nil: they can.
func (p *Plan) CheckShadows() error {
	if p.Replicated() {
		return fmt.Errorf("each rank has replicas with the same weights, so it needs no shadow")
	}
	return p.CheckRenewal()
}

// PlaceShadows chooses the place of each rank's shadow: where it was, if that is still possible; else with the next rank in another
// process, on another host if there is one. With cluster.edge, the shadow of a rank of stage 0 stays with that stage.
func (p *Plan) PlaceShadows(sites []Site, was []int) (s Shadows) {
	s.At = make([]int, len(sites))
	for rank := range sites {
		may := func(h int) bool {
			return h >= 0 && h < len(sites) && sites[h].Process != sites[rank].Process &&
				(!p.cfg.Cluster.Edge || p.stageOf(rank) != 0 || p.stageOf(h) == 0)
		}
		if s.At[rank] = -1; rank < len(was) && may(was[rank]) {
			s.At[rank] = was[rank]
			continue
		}
		for i := 1; i < len(sites); i++ {
			h := (rank + i) % len(sites)
			apart := sites[h].Host != sites[rank].Host
			if may(h) && (s.At[rank] < 0 || apart) {
				if s.At[rank] = h; apart {
					break
				}
			}
		}
		switch {
		case s.At[rank] >= 0:
		case p.cfg.Cluster.Edge && p.stageOf(rank) == 0:
			s.Why = "the weights of stage 0 stay on the edge (cluster.edge), and no second worker there has ranks of that stage"
		default:
			s.Why = "all ranks are in one worker"
		}
	}
	if !s.Any() {
		s.At = nil
	}
	return s
}

// CheckPlaces rejects places of shadows that PlaceShadows would not choose. processes has the process of each rank.
func (p *Plan) CheckPlaces(at []int, processes []string) error {
	if len(at) == 0 {
		return nil
	}
	if err := p.CheckShadows(); err != nil {
		return fmt.Errorf("places of shadows: %w", err)
	}
	if len(at) != p.grid.World() || len(processes) != len(at) {
		return fmt.Errorf("%d places of shadows for %d ranks", len(at), p.grid.World())
	}
	for rank, h := range at {
		switch {
		case h == -1:
		case h < 0 || h >= len(at) || processes[h] == processes[rank]:
			return fmt.Errorf("the shadow of rank %d cannot be with rank %d: that is no rank of another process", rank, h)
		case p.cfg.Cluster.Edge && p.stageOf(rank) == 0 && p.stageOf(h) != 0:
			return fmt.Errorf("the shadow of rank %d cannot be with rank %d: the weights of stage 0 stay on the edge (cluster.edge)", rank,
				h)
		}
	}
	return nil
}

// ShadowBytes returns the host memory of each rank's shadow in bytes: trained weights, optimizer state, the gradients of a step, and what
// the update needs.
func (p *Plan) ShadowBytes() ([]int64, error) {
	bytes, err := p.memo.shadowBytes(p)
	return slices.Clone(bytes), err
}

func (p *Plan) shadowBytes() ([]int64, error) {
	ofStage := make([]int64, p.table.NumRanks())
	for _, equal := range p.stagesByKind() {
		bytes := int64(0)
		for tensor := range p.grid.TensorSize(equal[0]) { // their slices may differ
			dry := tensorops.NewDryStream()
			s, err := p.newShadow(equal[0], dry, p.dryOptions(equal[0], place{tensor: tensor}))
			if err != nil {
				return nil, fmt.Errorf("the shadow of a rank of stage %d: %w", equal[0], err)
			}
			l := dry.NewList()
			if err := errors.Join(s.DryStep(l), tensorops.Run(dry, l), s.Close()); err != nil {
				return nil, fmt.Errorf("the shadow of a rank of stage %d: %w", equal[0], err)
			}
			bytes = max(bytes, dry.Memory().Taken+s.Elements()*int64(tensorops.Float32.Size()))
		}
		for _, stage := range equal {
			ofStage[stage] = bytes
		}
	}
	bytes := make([]int64, p.grid.World())
	for rank := range bytes {
		bytes[rank] = ofStage[p.stageOf(rank)]
	}
	return bytes, nil
}

// HeldBytes returns the host memory of the shadows that each rank holds, in bytes.
func (p *Plan) HeldBytes(s Shadows) ([]int64, error) {
	held := make([]int64, p.grid.World())
	if !s.Any() {
		return held, nil
	}
	bytes, err := p.ShadowBytes()
	if err != nil {
		return nil, err
	}
	for rank, n := range bytes {
		if h := s.Of(rank); h >= 0 {
			held[h] += n
		}
	}
	return held, nil
}

// ShadowsApart returns the places of the shadows with cluster.shadow = "on" if each rank has its own process; else none, since only the
// workers show whether "auto" uses some.
func (p *Plan) ShadowsApart() Shadows {
	if p.cfg.Cluster.Shadow != ShadowOn {
		return Shadows{Why: `cluster.shadow is not "on"`}
	}
	if err := p.CheckShadows(); err != nil {
		return Shadows{Why: err.Error()}
	}
	sites := make([]Site, p.grid.World())
	for rank := range sites {
		sites[rank].Process = strconv.Itoa(rank)
	}
	return p.PlaceShadows(sites, nil)
}

// buildShadow is an actors.Spec.BuildShadow.
func (p *Plan) buildShadow(rank int, s tensorops.Stream) (*stages.Shadow, error) {
	return p.newShadow(p.stageOf(rank), s, p.optionsOf(rank, dryGroups{grid: p.grid}))
}

// dryGroups are the groups of a shadow, which has the rank's part of each parameter and sends nothing.
type dryGroups struct {
	NoGroups
	grid *grid.Grid
}

// Of returns a rank's group along a dimension; nil: the rank is alone.
func (g dryGroups) Of(rank int, d grid.Dimension) tensorops.Group {
	ranks := g.grid.Group(rank, d)
	if len(ranks) == 1 {
		return nil
	}
	return tensorops.DryGroup{Place: slices.Index(ranks, rank), Members: len(ranks)}
}

func (p *Plan) newShadow(stage int, s tensorops.Stream, o stages.Options) (*stages.Shadow, error) {
	return stages.NewShadow(p.model, s, p.chunks[stage], o)
}

// What a shadow costs, in nanoseconds for each parameter of a rank: the update at the holder, and sending and receiving the gradient, on
// one core; and, for what the slowest rank waits until its gradient has arrived, the rate of the lane within a host and over TLS.
const (
	shadowNS      = 3.0
	laneHereNS    = gradientBytes / 12.0
	laneTLSNS     = gradientBytes / 1.9
	coreFLOPS     = 88e9 // of matrix products
	gradientBytes = 4    // of a parameter
	mostShadowed  = 0.02 // the largest part of a step that cluster.shadow = "auto" allows
)

// CheckShadowCost returns an error if shadows at these places are predicted to make a step more than 2 % slower. cores has the cores of
// each rank's process, and rates the measured rate from each rank to the holder of its shadow, in bytes/s; nil, or 0 for a rank: none was
// measured, and the network is taken for a fast one.
func (p *Plan) CheckShadowCost(s Shadows, sites []Site, cores []int, rates []float64) error {
	flops := p.RankFLOPs()
	tokens := float64(p.cfg.Batch.Sequences * p.cfg.Model.Context)
	ranksIn := make(map[string]int)
	for _, at := range sites {
		ranksIn[at.Process]++
	}
	var step, cost float64 // seconds
	for rank := range sites {
		own := float64(max(1, cores[rank])) / float64(ranksIn[sites[rank].Process])
		step = max(step, 3*flops[rank]*tokens/(coreFLOPS*own))
		h := s.Of(rank)
		if h < 0 {
			continue
		}
		lane := laneHereNS
		if sites[h].Host != sites[rank].Host {
			lane = laneTLSNS
		}
		if rates != nil && rates[rank] > 0 {
			lane = max(lane, gradientBytes/rates[rank]*1e9)
		}
		cost = max(cost, p.trainedOf(p.stageOf(rank))*(shadowNS+lane)*1e-9)
	}
	if cost > mostShadowed*step {
		const text = "shadows are predicted to make a step of about %.3g s slower by %.1f %%, more than the %.0f %% that " +
			`cluster.shadow = "auto" allows; with more tokens a step they cost less, and "on" has them at any cost`
		return fmt.Errorf(text, step, 100*cost/step, 100*mostShadowed)
	}
	return nil
}
