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
	replicas := p.updatesApart()
	var holds, updates place
	if p.grid.TensorSize(stage) == 1 && replicas == 1 {
		return []place{holds}, nil
	}
	places, err := p.updatePlaces(stage, replicas)
	if err != nil {
		return nil, err
	}
	mostHeld, mostTaken := int64(-1), int64(-1)
	for _, at := range places {
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
	if holds == updates {
		return []place{holds}, nil
	}
	return []place{holds, updates}, nil
}

// updatesApart returns how many replicas may need different memory for an update.
func (p *Plan) updatesApart() int {
	if p.cfg.Muon() && p.zero() > 0 {
		return p.grid.Size(grid.Copies)
	}
	return 1
}

// updatePlaces returns places of a stage's ranks: of replicas whose updates take the same memory the first one.
func (p *Plan) updatePlaces(stage, replicas int) (places []place, err error) {
	for tensor := range p.grid.TensorSize(stage) {
		if replicas == 1 {
			places = append(places, place{tensor: tensor})
			continue
		}
		err := p.withDryStage(stage, place{tensor: tensor}, func(st *stages.Stage, _ *tensorops.DryStream) error {
			seen := make(map[string]bool)
			for replica := range replicas {
				_, copy := p.expertPlace(place{tensor, replica})
				if kind := st.UpdateKind(replica, copy); !seen[kind] {
					seen[kind] = true
					places = append(places, place{tensor, replica})
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return places, nil
}

// withDryStage calls f with a rank of a stage on a stream that computes nothing.
func (p *Plan) withDryStage(stage int, at place, f func(st *stages.Stage, dry *tensorops.DryStream) error) (err error) {
	dry := tensorops.NewDryStream()
	st, err := stages.NewStage(p.model, dry, p.chunks[stage], p.dryOptions(stage, at))
	if err != nil {
		return fmt.Errorf("stage %d: %w", stage, err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return f(st, dry)
}

// dryUpdate returns the memory of what a rank holds between steps, and the memory that it takes if it then makes an update.
func (p *Plan) dryUpdate(stage int, at place) (held, taken int64, err error) {
	err = p.withDryStage(stage, at, func(st *stages.Stage, dry *tensorops.DryStream) error {
		held = dry.Memory().InUse
		if p.cfg.Muon() {
			l := dry.NewList()
			st.Apply(l, stages.Update{Count: 1})
			if err := tensorops.Run(dry, l); err != nil {
				return fmt.Errorf("stage %d: %w", stage, err)
			}
		}
		taken = dry.Memory().Taken
		return nil
	})
	return held, taken, err
}
