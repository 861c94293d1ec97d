package stages

import (
	"fmt"
	"math"
	"strconv"
)

// RouterConfig says how the routers of a model with experts choose. The zero value: the experts with the largest softmax.
type RouterConfig struct {
	// Sigmoid: a score is σ of its logit, instead of the softmax of a token's logits.
	Sigmoid bool `json:",omitempty"`
	// Groups, if it is not 0, divides the experts into equal groups, and a token chooses among the experts of its TopGroups best groups:
	// see tensorops.RouteOpts. Transformers names these n_group and topk_group.
	Groups    int `json:",omitempty"`
	TopGroups int `json:",omitempty"`
	// Scale is the factor of the weights of a token's experts, after Renormalize; 0: 1.
	Scale float64 `json:",omitempty"`
	// Bias: each expert has a number that is added to its score in the choice, but not in its weight. No gradient moves it, only
	// BalanceConfig.BiasRate.
	Bias bool `json:",omitempty"`
}

// BalanceConfig is how training balances the loads of experts, or disturbs routers. None of it changes what a trained model computes.
type BalanceConfig struct {
	// BiasRate is by how much each step moves the bias of an expert with fewer tokens than the mean up, and of one with more down
	// (Wang et al. 2024, arXiv 2408.15664). The load is that of the whole batch. 0: biases stay.
	BiasRate float64 `json:",omitempty"`
	// BySequence computes the balance loss for each sequence by itself, not over the tokens of a microbatch.
	BySequence bool `json:",omitempty"`
	// Global takes the f of the balance loss from more tokens: those of this microbatch and of the step's earlier ones, on all
	// replicas. With n[e] pairs of one of them and expert e, and k experts of a token, f[e] is k·n[e]/Σ n. P stays that of the
	// microbatch. The microbatches' input gradients must be recorded in ascending order, and all replicas must record the same number.
	// (Qiu et al. 2025, arXiv 2501.11873; Megatron-Core's global_aux_loss.)
	Global bool `json:",omitempty"`
	// ZLossWeight is the weight of the mean over tokens and layers of lse², with lse the logarithm of the sum of the exponentials of a
	// router's logits (Zoph et al. 2022, arXiv 2202.08906).
	ZLossWeight float64 `json:",omitempty"`
	// Jitter is the largest distance from 1 of the random factors of a router's input in training, one for each number.
	Jitter float64 `json:",omitempty"`
}

// The names of switches that messages use.
const (
	sharedSwitch     = "shared expert"
	sharedGateSwitch = "gate of the shared expert"
	sigmoidSwitch    = "sigmoids in the router"
	groupsSwitch     = "groups of experts"
	scaleSwitch      = "factor of the experts' weights"
	biasSwitch       = "bias of the router"
)

// switches names what only some families with experts have.
func (x ExpertConfig) switches() map[string]bool {
	return map[string]bool{sharedSwitch: x.SharedWidth != 0, sharedGateSwitch: x.SharedGate, sigmoidSwitch: x.Router.Sigmoid,
		groupsSwitch: x.Router.Groups != 0, scaleSwitch: x.Router.Scale != 0, biasSwitch: x.Router.Bias}
}

// checkRouter checks how experts are chosen.
func (x ExpertConfig) checkRouter() error {
	r := x.Router
	switch size := x.Count / max(r.Groups, 1); {
	case r.Groups == 0 && r.TopGroups != 0:
		return fmt.Errorf("%w: a token's experts are in %d groups, but there are no groups: set their number", ErrModel, r.TopGroups)
	case r.Groups < 0 || r.Groups > 0 && x.Count%r.Groups != 0:
		return fmt.Errorf("%w: %d experts cannot be divided into %d groups of the same size", ErrModel, x.Count, r.Groups)
	case r.Groups > 0 && size < 2:
		return fmt.Errorf("%w: %d groups of %d experts have one each: a group counts by its two best, so it needs at least 2",
			ErrModel, r.Groups,
			x.Count)
	case r.Groups > 0 && (r.TopGroups < 1 || r.TopGroups > r.Groups):
		return fmt.Errorf("%w: a token's experts are in %d groups: it must be from 1 to the number of groups, %d", ErrModel,
			r.TopGroups, r.Groups)
	case r.Groups > 0 && x.PerToken > size*r.TopGroups:
		return fmt.Errorf("%w: each token has %d experts, but its %d groups have %d: raise the groups of a token, or reduce its experts",
			ErrModel,
			x.PerToken, r.TopGroups, size*r.TopGroups)
	case !isFactor(r.Scale):
		return fmt.Errorf("%w: the %s is %g: it must be from %g to %g", ErrModel, scaleSwitch, r.Scale, minFactor, maxFactor)
	case x.Balance.BiasRate != 0 && !r.Bias:
		return fmt.Errorf("%w: the rate of the routers' biases is %g, but they have none: set the rate to 0", ErrModel, x.Balance.BiasRate)
	}
	return nil
}

func (b BalanceConfig) check() error {
	for name, v := range map[string]float64{"rate of the routers' biases": b.BiasRate, "weight of the z-loss": b.ZLossWeight} {
		if !(v >= 0) || math.IsInf(v, 1) {
			return fmt.Errorf("%w: the %s is %g: it must be 0 or more", ErrModel, name, v)
		}
	}
	if b.BySequence && b.Global {
		return fmt.Errorf("%w: the balance loss cannot be both that of each sequence and that of the whole step: choose one", ErrModel)
	}
	if !(b.Jitter >= 0 && b.Jitter < 1) {
		return fmt.Errorf("%w: the jitter of the routers' input is %g: it must be at least 0 and below 1", ErrModel, b.Jitter)
	}
	return nil
}

// jitterSite is where the input of layer i's router gets random factors.
func jitterSite(i int, p float64) site { return site{"layer." + strconv.Itoa(i) + ".router", p} }

// MaxLoad is the largest number of tokens of a step that a layer with a bias may get: float32 counts whole numbers up to it.
const MaxLoad = 1 << 24

// loadBias adds the bias of a router. Only loads move it: without a rate nothing does.
func (m *Model) loadBias(name string, experts int, rate float64) use {
	u := m.add(name, zeros, experts)
	u.param.LoadRate, u.param.Fixed = rate, rate == 0
	u.param.Frozen, u.param.Float32 = u.param.Fixed, true
	return u
}
