package plan

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// place is where a rank is in its groups: the place of rank 0 of a stage is the zero value.
type place struct{ tensor, replica int }

// fullestPlaces returns the places of a stage's ranks that may need the most memory: of the one that holds the most, and of the one
// that takes the most for an update by Muon. Slices of a tensor group differ if its size does not divide a weight, and the ranks are
// homes of different matrices. All else is largest at the first place.
func (p *Plan) fullestPlaces(stage int) ([]place, error) {
	replicas := 1
	if p.cfg.Muon() && p.zero() > 0 {
		replicas = p.grid.Size(grid.Copies)
	}
	var holds, updates place
	if p.grid.TensorSize(stage) == 1 && replicas == 1 {
		return []place{holds}, nil
	}
	mostHeld, mostTaken := int64(-1), int64(-1)
	for replica := range replicas {
		for tensor := range p.grid.TensorSize(stage) {
			at := place{tensor, replica}
			held, taken, err := p.dryUpdate(stage, at)
			if err != nil {
				return nil, err
			}
			if held > mostHeld {
				holds, mostHeld = at, held
			}
			if taken > mostTaken {
				updates, mostTaken = at, taken
			}
		}
	}
	if holds == updates {
		return []place{holds}, nil
	}
	return []place{holds, updates}, nil
}

// dryUpdate returns the memory of what a rank holds between steps, and the memory that it takes if it then makes an update.
func (p *Plan) dryUpdate(stage int, at place) (held, taken int64, err error) {
	dry := tensorops.NewDryStream()
	st, err := stages.NewStage(p.model, dry, p.chunks[stage], p.dryOptions(stage, at))
	if err != nil {
		return 0, 0, fmt.Errorf("stage %d: %w", stage, err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	held = dry.Memory().InUse
	if p.cfg.Muon() {
		l := dry.NewList()
		st.Apply(l, stages.Update{Count: 1})
		if err := tensorops.Run(dry, l); err != nil {
			return 0, 0, fmt.Errorf("stage %d: %w", stage, err)
		}
	}
	return held, dry.Memory().Taken, nil
}
