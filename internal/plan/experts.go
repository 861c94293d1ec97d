package plan

import "github.com/troupe-ml/troupe/internal/host/device"

// checkExperts refuses what layers with experts cannot do yet.
func (p *Plan) checkExperts() error {
	c := p.cfg
	if p.model.Config.Experts.Count == 0 {
		return nil
	}
	if r, found := p.gpuStage(); found {
		return c.Errorf("model.experts", "experts compute only on the CPU, but stage %d is on a GPU; set %s = \"cpu\", or use a family "+
			"without experts", r, device.Key(c))
	}
	return nil
}
