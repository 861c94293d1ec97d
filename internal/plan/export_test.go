package plan

import "github.com/troupe-ml/troupe/scheduler"

// DryRun is dryRun.
func (p *Plan) DryRun(rank int, row []scheduler.Action) (int64, error) { return p.dryRun(rank, row) }

// DryRunAt is dryRunAt of a whole row.
func (p *Plan) DryRunAt(stage, tensor, replica int) (int64, error) {
	return p.dryRunAt(stage, place{tensor, replica}, p.table.Ranks[stage])
}

// UpdatePlaces returns the number of a stage's ranks whose update is recorded to find the fullest.
func (p *Plan) UpdatePlaces(stage int) (int, error) {
	places, err := p.updatePlaces(stage, p.updatesApart())
	return len(places), err
}
