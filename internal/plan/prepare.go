package plan

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// Prepare builds the stages of some ranks, and the shadows that they will hold, without their state: Spec.Adopt of a later attempt. They
// take their memory from the system now, also that of a step. It ends early, with an error, if ends says so.
func (p *Plan) Prepare(ranks []int, shadows []int, devices []tensorops.Device, ends func() bool) (all []*actors.Kept, err error) {
	s := &actors.Spec{Table: p.table, Devices: devices, Shadows: shadows, Build: p.buildBlank, BuildShadow: p.buildShadow}
	if p.grid.World() > p.table.NumRanks() {
		s.Grid = p.grid
	}
	for _, rank := range ranks {
		k, err := actors.Prepare(s, rank, ends)
		if err != nil {
			for _, k := range all {
				err = errors.Join(err, k.Close())
			}
			return nil, err
		}
		all = append(all, k)
	}
	return all, nil
}

// buildBlank builds the stage of a rank without its numbers and its groups, with the memory of a step.
func (p *Plan) buildBlank(rank int, s tensorops.Stream) (actors.Compute, error) {
	stage := p.stageOf(rank)
	st, err := stages.NewStage(p.model, s, p.chunks[stage], p.optionsOf(rank, dryGroups{grid: p.grid}))
	if err != nil {
		return nil, err
	}
	own, counts := s.Arena().(*tensorops.Pool)
	if !counts {
		return st, nil
	}
	dry, row := tensorops.NewDryStream(), p.table.Ranks[stage]
	if _, err := p.dryRunOn(dry, stage, place{}, row[:min(len(row), p.dryActions(stage, usualActions))]); err != nil {
		return nil, errors.Join(fmt.Errorf("the memory of a step of rank %d: %w", rank, err), st.Close())
	}
	if like, ok := dry.Arena().(*tensorops.Pool); ok {
		own.Match(like)
	}
	return st, nil
}
