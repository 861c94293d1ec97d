package plan

import (
	"fmt"
	"sync"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// Groups are the groups of a run's ranks in this process.
type Groups interface {
	// Of returns a rank's group along a dimension; nil: the rank is alone.
	Of(rank int, d grid.Dimension) tensorops.Group
	// Fail ends the waits of all members with err, now and from now on.
	Fail(err error)
	// Status returns what a rank waits for in its groups; ok is false if it does not wait.
	Status(rank int) (actors.GroupWait, bool)
}

// GroupWait returns what a rank waits for in its group along dimension d; ok is false if it does not wait.
func GroupWait(g *grid.Grid, rank int, d grid.Dimension, group *collective.Group) (actors.GroupWait, bool) {
	s, ok := group.Status()
	if !ok || len(s.Missing) == 0 {
		return actors.GroupWait{}, false
	}
	return actors.GroupWait{What: fmt.Sprintf("%s, collective %d of group %s", s.What, s.Collective, s.Group),
		From: g.Group(rank, d)[s.Missing[0]], Since: s.Since}, true
}

// GroupDimensions returns the dimensions along which ranks of a grid have groups.
func GroupDimensions(g *grid.Grid) []grid.Dimension {
	all := []grid.Dimension{grid.Tensor, grid.Context, grid.Copies}
	if g.HasExpertGroups() {
		all = append(all, grid.Expert, grid.ExpertCopies)
	}
	return all
}

// localGroups are groups whose members are all in this process.
type localGroups struct {
	grid    *grid.Grid
	members map[memberOf]*collective.Group
	fail    sync.Once
}

type memberOf struct {
	rank int
	dim  grid.Dimension
}

// LocalGroups makes all groups of a grid in this process.
func (p *Plan) LocalGroups() Groups {
	g := &localGroups{grid: p.grid, members: make(map[memberOf]*collective.Group)}
	for _, d := range GroupDimensions(p.grid) {
		for _, ranks := range p.grid.Groups(d) {
			if len(ranks) == 1 {
				continue
			}
			for i, member := range collective.Local(p.grid.Name(ranks[0], d), len(ranks)) {
				g.members[memberOf{ranks[i], d}] = member
			}
		}
	}
	return g
}

func (g *localGroups) Of(rank int, d grid.Dimension) tensorops.Group {
	if m := g.members[memberOf{rank, d}]; m != nil {
		return m
	}
	return nil
}

// Status implements Groups.
func (g *localGroups) Status(rank int) (w actors.GroupWait, ok bool) {
	for _, d := range GroupDimensions(g.grid) {
		if m := g.members[memberOf{rank, d}]; m != nil {
			if w, ok = GroupWait(g.grid, rank, d, m); ok {
				return w, true
			}
		}
	}
	return w, false
}

func (g *localGroups) Fail(err error) {
	g.fail.Do(func() {
		for _, m := range g.members {
			m.Leave(err)
		}
	})
}

// optionsOf returns the options of a rank's stage, in its groups.
func (p *Plan) optionsOf(rank int, groups Groups) stages.Options {
	o := p.StageOptions(p.stageOf(rank))
	o.Tensor = stages.TensorParallel{Group: groups.Of(rank, grid.Tensor), Sequence: p.sequence()}
	o.Context = stages.ContextParallel{Group: groups.Of(rank, grid.Context)}
	o.Data = stages.DataParallel{Group: groups.Of(rank, grid.Copies), Zero: p.zero(), WholeGrads: p.wholeGrads, HoldWeights: p.holdWeights}
	if p.grid.HasExpertGroups() {
		o.Experts = p.expertParallel(groups.Of(rank, grid.Expert), groups.Of(rank, grid.ExpertCopies))
	}
	return o
}

// expertParallel returns the options of a rank in these groups.
func (p *Plan) expertParallel(group, copies tensorops.Group) stages.ExpertParallel {
	return stages.ExpertParallel{Group: group, Copies: copies, Whole: p.grid.WholeExperts(), Alone: !p.Replicated(),
		Rows: p.mostRows(), Overlap: p.cfg.Parallel.ExpertOverlap}
}

// dryOptions returns the options of a rank of a stage for a dry run.
func (p *Plan) dryOptions(stage int, at place) stages.Options {
	o := p.LayerOptions(stage, func(d grid.Dimension, members int) tensorops.Group {
		if d == grid.Tensor {
			return dryMember(d, at.tensor, members)
		}
		return dryGroup(d, members)
	})
	o.MemoryBytes = 0 // the dry run must find what a step needs, without a limit
	if n := p.grid.Size(grid.Copies); n > 1 {
		o.Data = stages.DataParallel{Group: dryMember(grid.Copies, at.replica, n), Zero: p.zero(), WholeGrads: p.wholeGrads,
			HoldWeights: p.holdWeights}
	}
	if p.grid.HasExpertGroups() {
		var group, copies tensorops.Group
		i, k := p.expertPlace(at)
		if n := p.grid.Size(grid.Expert); n > 1 {
			group = dryMember(grid.Expert, i, n)
		}
		if n := p.grid.Size(grid.ExpertCopies); n > 1 {
			copies = dryMember(grid.ExpertCopies, k, n)
		}
		o.Experts = p.expertParallel(group, copies)
	}
	return o
}

// expertPlace returns the place in its expert group of a rank for a dry run, and its place among the ranks with the same experts, in the
// default order.
func (p *Plan) expertPlace(at place) (place, copy int) {
	i, n := at.replica, p.grid.Size(grid.Expert)
	if p.grid.WholeExperts() {
		i = i*p.grid.Size(grid.Tensor) + at.tensor
	}
	return i % n, i / n
}

// LayerOptions returns the options of a rank of a stage that divide its layers: its tensor and context groups, made by
// group for a number of members.
func (p *Plan) LayerOptions(stage int, group func(d grid.Dimension, members int) tensorops.Group) stages.Options {
	o := p.StageOptions(stage)
	if n := p.grid.TensorSize(stage); n > 1 {
		o.Tensor = stages.TensorParallel{Group: group(grid.Tensor, n), Sequence: p.sequence()}
	}
	if n := p.grid.Size(grid.Context); n > 1 {
		o.Context = stages.ContextParallel{Group: group(grid.Context, n)}
	}
	if p.grid.WholeExperts() { // of a replica alone; those of all are in optionsOf and dryOptions
		o.Experts = stages.ExpertParallel{Whole: true, Copies: group(grid.ExpertCopies, p.grid.TensorSize(stage))}
	}
	return o
}

// sequence reports whether the ranks of a tensor group share positions (parallel.sequence).
func (p *Plan) sequence() bool { return p.cfg.Parallel.Sequence && p.grid.Size(grid.Tensor) > 1 }

// slices reports whether the ranks of a tensor group have parts of the positions: always, only between stages, or only in layers with
// experts.
func (p *Plan) slices() bool {
	return p.grid.Size(grid.Tensor) > 1 && (p.sequence() || p.way() == grid.Scatter || p.grid.WholeExperts())
}

// checkGroups rejects what tensor and context parallelism cannot do.
func (p *Plan) checkGroups() error {
	c := p.cfg
	if err := p.model.CheckContext(p.grid.Size(grid.Context)); err != nil {
		return c.Errorf("parallel.context", "%w", err)
	}
	if p.grid.Size(grid.Tensor) == 1 {
		return nil
	}
	check := p.model.CheckTensor
	if p.grid.WholeExperts() {
		check = p.model.CheckWholeExperts
	}
	for stage := range c.Pipeline.Stages {
		if err := check(p.grid.TensorSize(stage)); err != nil {
			return c.Errorf("parallel.tensor", "stage %d: %w", stage, err)
		}
	}
	if n := p.grid.Positions(p.slices()); c.Model.Context%n != 0 {
		sizes := fmt.Sprintf("tensor groups of %v ranks share the %d positions of a sequence (model.context)", c.Parallel.Tensor, c.Model.Context)
		if n := p.grid.Size(grid.Context); n > 1 {
			sizes += fmt.Sprintf(", which %d ranks divide into two blocks each (parallel.context)", n)
		}
		switch {
		case p.sequence():
			return c.Errorf("parallel.sequence", "%s: model.context must be a multiple of %d", sizes, n)
		case p.way() != grid.Scatter:
			return c.Errorf("parallel.expert_tensor", "each rank has whole experts and routes its part of the positions; %s: "+
				"model.context must be a multiple of %d", sizes, n)
		}
		return c.Errorf("parallel.edges", "between stages, %s: model.context must be a multiple of %d", sizes, n)
	}
	return nil
}

// NoGroups are the groups of a process that computes no ranks.
type NoGroups struct{}

// Of returns nil.
func (NoGroups) Of(int, grid.Dimension) tensorops.Group { return nil }

// Status returns that no rank waits.
func (NoGroups) Status(int) (actors.GroupWait, bool) { return actors.GroupWait{}, false }

// Fail does nothing.
func (NoGroups) Fail(error) {}
