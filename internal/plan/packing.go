package plan

import "github.com/troupe-ml/troupe/config"

// Packed reports whether sequences hold several documents.
func (p *Plan) Packed() bool { return p.cfg.Data.Packing != config.PackNone }

// checkPacking rejects models whose documents cannot share a sequence.
func (p *Plan) checkPacking() error {
	if !p.Packed() {
		return nil
	}
	if err := p.model.CheckPacking(); err != nil {
		return p.cfg.Errorf("data.packing", "%w", err)
	}
	return nil
}

// starts returns the starts of documents of a dry run's microbatch: each sequence is one. nil: the run is not packed.
func (p *Plan) starts(positions int) []int32 {
	if !p.Packed() {
		return nil
	}
	return make([]int32, positions)
}
