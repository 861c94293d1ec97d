package plan

import (
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/stages"
)

// way is how tensors get from one tensor group to another.
func (p *Plan) way() grid.Way {
	w, err := grid.ParseWay(p.cfg.Parallel.Edges)
	if err != nil { // which config refuses
		return grid.Auto
	}
	return w
}

// tiedPlaces are those of the ranks of other stages that use a tied weight, in their tensor groups.
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

// tiedRanks are those ranks, of a rank's pipeline.
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
