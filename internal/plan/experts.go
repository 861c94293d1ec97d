package plan

import "github.com/troupe-ml/troupe/internal/host/device"

// mostRows returns the largest number of tokens in a microbatch.
func (p *Plan) mostRows() int {
	n := max(p.grid.Positions(p.slices()), 1)
	return p.cfg.Batch.Microbatch * ((p.cfg.Model.Context + n - 1) / n * n)
}

// expertParam reports whether a parameter has the matrices of experts.
func (p *Plan) expertParam(param int) bool {
	return param >= 0 && param < len(p.model.Params) && p.model.Params[param].Experts()
}

// checkExperts refuses what layers with experts cannot do yet.
func (p *Plan) checkExperts() error {
	c := p.cfg
	n := c.Parallel.Expert
	switch all := p.model.Config.Experts.Count; {
	case n > 1 && all%n > 0: // model.from decides the number
		return c.Errorf("parallel.expert", "%d ranks cannot share %d experts evenly; use a divisor of that number", n, all)
	case n > 1 && all == 0:
		return c.Errorf("parallel.expert", "%d ranks have no experts to share: the model has none; leave expert out", n)
	case all == 0:
		return nil
	}
	if r, found := p.gpuStage(); found {
		return c.Errorf("model.experts", "experts compute only on the CPU, but stage %d is on a GPU; set %s = \"cpu\", or use a family "+
			"without experts", r, device.Key(c))
	}
	return nil
}
