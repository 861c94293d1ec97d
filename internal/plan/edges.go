package plan

import (
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/stages"
)

// way is how tensors travel from one tensor group to another.
func (p *Plan) way() grid.Way {
	w, err := grid.ParseWay(p.cfg.Parallel.Edges)
	if err != nil { // config rejects it
		return grid.Auto
	}
	return w
}

// tiedPlaces returns the places, in their tensor groups, of the ranks of other stages that use a tied weight.
func (p *Plan) tiedPlaces(stage int) (all []stages.TensorPlace) {
	for _, other := range p.EmbeddingRanks() {
		if other == stage {
			continue
		}
		for i := range p.grid.TensorSize(other) {
			all = append(all, stages.TensorPlace{Rank: i, Size: p.grid.TensorSize(other)})
		}
	}
	return all
}

// tiedRanks returns these ranks, in the pipeline of a rank.
func (p *Plan) tiedRanks(rank int) (all []int) {
	at := p.grid.Coordinates(rank)
	stage := at[grid.Pipeline]
	for _, other := range p.EmbeddingRanks() {
		if other == stage {
			continue
		}
		at[grid.Pipeline] = other
		for at[grid.Tensor] = range p.grid.TensorSize(other) {
			all = append(all, p.grid.Rank(at))
		}
	}
	return all
}
