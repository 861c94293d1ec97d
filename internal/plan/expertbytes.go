package plan

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// expertBytes returns the bytes of the copies of a rank's experts for a checkpoint, by stage: their weights and their optimizer
// state. weights and states are those of stages with all experts. Without expert groups they are 0.
func (p *Plan) expertBytes(weights, states []int64) (ofWeights, ofStates []int64, err error) {
	ofWeights, ofStates = make([]int64, len(weights)), make([]int64, len(states))
	n := int64(p.grid.Size(grid.Expert))
	if n == 1 {
		return ofWeights, ofStates, nil
	}
	for stage := range weights {
		o := p.dryOptions(stage, place{})
		st, err := stages.NewStage(p.model, tensorops.NewDryStream(), p.chunks[stage], o)
		if err != nil {
			return nil, nil, fmt.Errorf("stage %d: %w", stage, err)
		}
		w, s := st.SavedBytes()
		if err := st.Close(); err != nil {
			return nil, nil, fmt.Errorf("stage %d: %w", stage, err)
		}
		// The stage has lost all experts except a part of them.
		ofWeights[stage], ofStates[stage] = (weights[stage]-w)/(n-1), (states[stage]-s)/(n-1)
	}
	return ofWeights, ofStates, nil
}
