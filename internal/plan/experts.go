package plan

import (
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/stages"
)

// expertConfig takes the settings of experts from a configuration. Which layers have experts is that of model.from, if the weights come
// from there.
func expertConfig(m config.Model, out *stages.ExpertConfig, loaded bool) {
	out.Count, out.PerToken, out.Width, out.SharedWidth = m.Experts, m.ExpertsPerToken, m.ExpertFFN, m.SharedExpertFFN
	out.Renormalize, out.Router.Groups, out.Router.TopGroups = m.NormTopKProb, m.NGroup, m.TopKGroup
	if out.Router.Scale = m.RoutedScalingFactor; out.Router.Scale == 1 {
		out.Router.Scale = 0
	}
	out.AuxLossWeight = m.AuxLossWeight
	out.Balance = stages.BalanceConfig{BiasRate: m.RouterBiasUpdateRate, BySequence: m.LoadBalancingType == config.SequenceBalance,
		Global: m.LoadBalancingType == config.GlobalBalance, ZLossWeight: m.ZLossWeight, Jitter: m.InputJitterEps}
	if !loaded {
		out.Dense = stages.DenseLayers(m.Layers, m.FirstKDenseReplace, m.DecoderSparseStep)
	}
}

// expertShape sets the keys of experts and of latent attention to those of a model.
func expertShape(c stages.Config, m *config.Model) {
	x := c.Experts
	m.Experts, m.ExpertsPerToken, m.ExpertFFN, m.SharedExpertFFN = x.Count, x.PerToken, x.Width, x.SharedWidth
	m.NormTopKProb, m.NGroup, m.TopKGroup, m.RoutedScalingFactor = x.Renormalize, x.Router.Groups, x.Router.TopGroups, x.Router.Scale
	if m.RoutedScalingFactor == 0 {
		m.RoutedScalingFactor = 1
	}
	m.FirstKDenseReplace, m.DecoderSparseStep = stages.DensePattern(c.Layers, x.Dense, stages.ExpertTraitsOf(c.Family))
	m.QLoRARank, m.KVLoRARank, m.QKNopeHeadDim, m.QKRopeHeadDim, m.VHeadDim = c.Latent.QRank, c.Latent.KVRank, c.Latent.Nope, c.Latent.Rope,
		c.Latent.Value
}

// mostRows returns the largest number of tokens of a microbatch that a rank routes.
func (p *Plan) mostRows() int {
	n := max(p.grid.Positions(p.slices()), 1)
	rows := p.cfg.Batch.Microbatch * ((p.cfg.Model.Context + n - 1) / n * n) / p.grid.Size(grid.Context)
	if p.grid.WholeExperts() {
		rows /= p.grid.Size(grid.Tensor)
	}
	return rows
}

// extra returns stages.Microbatch.Extra of a dry run: routers keep a copy of their choices if the grid adds positions to a microbatch.
func (p *Plan) extra() int {
	if lengthsDiffer(p.cfg) && p.grid.Positions(p.slices()) > 1 {
		return 1
	}
	return 0
}

// expertParam reports whether a parameter has the matrices of experts.
func (p *Plan) expertParam(param int) bool {
	return param >= 0 && param < len(p.model.Params) && p.model.Params[param].Experts()
}

// trainedOf returns about how many weights a rank of a stage updates: a part of the matrices of a tensor group, and of the experts of an
// expert group.
func (p *Plan) trainedOf(stage int) float64 {
	all, tensor := float64(p.model.TrainedOf(p.chunks[stage])), float64(p.grid.TensorSize(stage))
	if !p.grid.HasExpertGroups() {
		return all / tensor
	}
	experts := p.TrainedExperts(stage)
	own := experts / float64(p.grid.Size(grid.Expert)) // of each of them, a tensor group has parts or whole ones
	if !p.grid.WholeExperts() {
		own /= tensor
	}
	return (all-experts)/tensor + own
}

// TrainedExperts returns how many weights of experts the ranks of a stage update together.
func (p *Plan) TrainedExperts(stage int) (n float64) {
	names := p.model.ParameterNames(p.chunks[stage])
	for _, w := range p.model.Params {
		if names[w.Name] && w.Experts() && !w.Frozen {
			n += float64(w.Len())
		}
	}
	return n
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
	case all == 0 && p.grid.WholeExperts():
		return c.Errorf("parallel.expert_tensor", "1 gives the ranks of a tensor group whole experts, but the model has none; leave "+
			"expert_tensor out")
	case all == 0:
		return nil
	}
	if err := p.model.CheckExperts(n); err != nil {
		return c.Errorf("parallel.expert", "%w", err)
	}
	if r, found := p.gpuStage(); found && p.grid.WholeExperts() {
		return c.Errorf("parallel.expert_tensor", "1 gives the ranks of a tensor group whole experts, which they have only on the CPU, "+
			"but stage %d is on a GPU; leave expert_tensor out, or set %s = \"cpu\"", r, device.Key(c))
	}
	rate := c.Model.RouterBiasUpdateRate
	if rate > 0 && c.IsSet("model.router_bias_update_rate") && c.LoRA() != nil {
		return c.Errorf("model.router_bias_update_rate",
			"%g, but with adapters the base is frozen, and so are its biases; leave the key out", rate)
	}
	if tokens := int64(c.Batch.Sequences) * int64(c.Model.Context); rate > 0 && tokens > stages.MaxLoad {
		return c.Errorf("model.router_bias_update_rate",
			"%g, but a step has %d tokens, and loads are exact up to %d; reduce batch.sequences, "+
				"or set the rate to 0", rate, tokens, stages.MaxLoad)
	}
	return nil
}
