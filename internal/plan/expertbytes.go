package plan

import (
	"fmt"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// expertBytes returns the bytes of the copies of a rank's experts for a checkpoint, by stage: their weights and their optimizer
// state. Without expert groups they are 0.
func (p *Plan) expertBytes() (ofWeights, ofStates []int64, err error) {
	ranks := p.table.NumRanks()
	ofWeights, ofStates = make([]int64, ranks), make([]int64, ranks)
	if !p.grid.HasExpertGroups() {
		return ofWeights, ofStates, nil
	}
	for stage := range ranks {
		o := p.dryOptions(stage, place{})
		o.Data.Zero = 0 // CopyBytes divides them
		st, err := stages.NewStage(p.model, tensorops.NewDryStream(), p.chunks[stage], o)
		if err != nil {
			return nil, nil, fmt.Errorf("stage %d: %w", stage, err)
		}
		ofWeights[stage], ofStates[stage] = st.SavedExpertBytes()
		if err := st.Close(); err != nil {
			return nil, nil, fmt.Errorf("stage %d: %w", stage, err)
		}
	}
	return ofWeights, ofStates, nil
}
