package plan

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// expertBytes returns the bytes of the copies of a rank's experts for a checkpoint, by stage: their weights and their optimizer
// state. Without expert groups they are 0.
func (p *Plan) expertBytes() (ofWeights, ofStates []int64, err error) {
	ranks := p.table.NumRanks()
	ofWeights, ofStates = make([]int64, ranks), make([]int64, ranks)
	n := int64(p.grid.Size(grid.Expert))
	if n == 1 {
		return ofWeights, ofStates, nil
	}
	for stage := range ranks {
		all, allState, err := p.savedWith(stage, false)
		if err != nil {
			return nil, nil, err
		}
		part, partState, err := p.savedWith(stage, true)
		if err != nil {
			return nil, nil, err
		}
		// A rank of a group lacks all experts except its part of them.
		ofWeights[stage], ofStates[stage] = (all-part)/(n-1), (allState-partState)/(n-1)
	}
	return ofWeights, ofStates, nil
}

// savedWith returns the bytes of a rank's copies, with or without expert groups.
func (p *Plan) savedWith(stage int, groups bool) (weights, state int64, err error) {
	o := p.dryOptions(stage, place{})
	o.Data.Zero = 0 // CopyBytes divides them
	if !groups {
		o.Experts = stages.ExpertParallel{}
	}
	st, err := stages.NewStage(p.model, tensorops.NewDryStream(), p.chunks[stage], o)
	if err != nil {
		return 0, 0, fmt.Errorf("stage %d: %w", stage, err)
	}
	weights, state = st.SavedBytes()
	if err := st.Close(); err != nil {
		return 0, 0, fmt.Errorf("stage %d: %w", stage, err)
	}
	return weights, state, nil
}
