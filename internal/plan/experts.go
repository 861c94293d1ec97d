package plan

import "github.com/troupe-ml/troupe/internal/host/device"

// checkExperts refuses what layers with experts cannot do yet.
func (p *Plan) checkExperts() error {
	c := p.cfg
	if p.model.Config.Experts.Count == 0 {
		return nil
	}
	for r := range c.Pipeline.Stages {
		if device.KindOf(c, r) == device.CUDA {
			return c.Errorf("model.experts", "experts compute only on the CPU, but stage %d is on a GPU; set %s = \"cpu\", or use a family "+
				"without experts", r, device.Key(c))
		}
	}
	return nil
}
