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
	if g.Size(grid.Expert) > 1 {
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
	if p.grid.Size(grid.Expert) > 1 {
		o.Experts = stages.ExpertParallel{Group: groups.Of(rank, grid.Expert), Copies: groups.Of(rank, grid.ExpertCopies),
			Rows: p.mostRows(), Overlap: p.cfg.Parallel.ExpertOverlap}
	}
	return o
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
	if n := p.grid.Size(grid.Expert); n > 1 {
		o.Experts = stages.ExpertParallel{Group: dryMember(grid.Expert, at.replica%n, n), Rows: p.mostRows(),
			Overlap: p.cfg.Parallel.ExpertOverlap}
		if m := p.grid.Size(grid.ExpertCopies); m > 1 {
			o.Experts.Copies = dryMember(grid.ExpertCopies, at.replica/n, m)
		}
	}
	return o
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
	return o
}

// sequence reports whether the ranks of a tensor group share positions (parallel.sequence).
func (p *Plan) sequence() bool { return p.cfg.Parallel.Sequence && p.grid.Size(grid.Tensor) > 1 }

// slices reports whether the ranks of a tensor group have parts of the positions, always or only between stages.
func (p *Plan) slices() bool {
	return p.grid.Size(grid.Tensor) > 1 && (p.sequence() || p.way() == grid.Scatter)
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
	for stage := range c.Pipeline.Stages {
		if err := p.model.CheckTensor(p.grid.TensorSize(stage)); err != nil {
			return c.Errorf("parallel.tensor", "stage %d: %w", stage, err)
		}
	}
	if n := p.grid.Positions(p.slices()); c.Model.Context%n != 0 {
		sizes := fmt.Sprintf("tensor groups of %v ranks share the %d positions of a sequence (model.context)", c.Parallel.Tensor, c.Model.Context)
		if n := p.grid.Size(grid.Context); n > 1 {
			sizes += fmt.Sprintf(", which %d ranks divide into two blocks each (parallel.context)", n)
		}
		if p.sequence() {
			return c.Errorf("parallel.sequence", "%s: model.context must be a multiple of %d", sizes, n)
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
