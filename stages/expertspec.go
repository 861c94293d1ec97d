package stages

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// ExpertConfig holds the sizes of the decoder layers whose feed-forward part is a mixture of experts. The zero value:
// the model has none.
type ExpertConfig struct {
	Count    int // experts of a layer
	PerToken int // experts that compute each token
	Width    int // inner width of an expert
	// Dense lists the decoder layers with one dense feed-forward part of width FFN instead, in ascending order. Layers of
	// multi-token prediction have experts.
	Dense []int `json:",omitempty"`
	// GateLimit and GateAlpha are the numbers of the clamped gate of GPT-OSS: see tensorops.ClampedSwiGLU. 0: 7 and 1.702.
	GateLimit float64 `json:",omitempty"`
	GateAlpha float64 `json:",omitempty"`
	// Renormalize divides the weights of a token's experts by their sum.
	Renormalize bool `json:",omitempty"`
	// Router says how scores are computed and experts are chosen, other than by the largest of a softmax.
	Router RouterConfig `json:",omitzero"`
	// SharedWidth is the inner width of the shared expert, which computes every token and whose output is added; 0: there is none.
	// SharedGate multiplies its output by σ of a linear function of the token.
	SharedWidth int  `json:",omitempty"`
	SharedGate  bool `json:",omitempty"`
	// Balance is what training does to balance loads, besides AuxLossWeight.
	Balance BalanceConfig `json:",omitzero"`
	// AuxLossWeight is the weight of the balance loss in the total loss. The loss of a layer and a microbatch of N tokens is
	// E·Σ f[e]·P[e], with f[e] the pairs of a token and expert e, divided by N, and P[e] the mean of the router's softmax, or of its
	// sigmoids divided by their sum: PerToken if all experts have equal loads. The balance loss of a microbatch is the mean over the
	// layers with experts,
	// weighted by its tokens. Transformers has one loss over all layers, with the means of f and P over them, which layers in
	// different stages cannot share; with one layer of experts the two are the same. BalanceConfig has other forms of f.
	AuxLossWeight float64 `json:",omitempty"`
}

// The names of these layers, and of the numbers of a clamped gate, in errors.
const (
	expertSwitch = "experts"
	gateSwitch   = "limits of the experts' gate"
)

func (x ExpertConfig) none() bool { return x.Count == 0 }

// layers returns the number of layers with experts, of all decoder layers.
func (x ExpertConfig) layers(all int) int {
	if x.none() {
		return 0
	}
	return all - len(x.Dense)
}

func (c Config) checkExperts() error {
	x := c.Experts
	if x.none() {
		if x.PerToken != 0 || x.Width != 0 || len(x.Dense) > 0 || x.Renormalize || x.AuxLossWeight != 0 ||
			x.GateLimit != 0 || x.GateAlpha != 0 ||
			x.SharedWidth != 0 ||
			x.SharedGate || x.Router != (RouterConfig{}) || x.Balance != (BalanceConfig{}) {
			return fmt.Errorf("%w: the sizes of experts are set, but there are no experts: set their number, or leave the sizes out",
				ErrModel)
		}
		return nil
	}
	switch {
	case x.Count < 1 || x.Count > MaxExperts:
		return fmt.Errorf("%w: there are %d experts: it must be from 1 to %d", ErrModel, x.Count, MaxExperts)
	case x.PerToken < 1 || x.PerToken > x.Count:
		return fmt.Errorf("%w: each token has %d experts: it must be from 1 to the number of experts, %d", ErrModel, x.PerToken, x.Count)
	case x.Width < 1 || x.Width > MaxFFN:
		return fmt.Errorf("%w: an expert has width %d: it must be from 1 to %d", ErrModel, x.Width, MaxFFN)
	case !(x.AuxLossWeight >= 0) || math.IsInf(x.AuxLossWeight, 1):
		return fmt.Errorf("%w: the weight of the auxiliary loss is %g: it must be 0 or more", ErrModel, x.AuxLossWeight)
	case !isFactor(x.GateLimit) || !isFactor(x.GateAlpha):
		return fmt.Errorf("%w: the %s are %g and %g: each must be from %g to %g", ErrModel, gateSwitch, x.GateLimit, x.GateAlpha, minFactor,
			maxFactor)
	case x.SharedWidth < 0 || x.SharedWidth > MaxFFN:
		return fmt.Errorf("%w: the shared expert has width %d: it must be from 1 to %d, or 0 for none", ErrModel, x.SharedWidth, MaxFFN)
	case x.SharedGate && x.SharedWidth == 0:
		return fmt.Errorf("%w: the shared expert has a gate, but no width: set its width, or leave the gate out", ErrModel)
	case c.MLPBias:
		return fmt.Errorf("%w: experts with biases are not supported: leave mlp_bias out", ErrModel)
	case int64(x.Count)*int64(max(x.Width, c.Hidden)) > tensorops.MaxDim:
		return fmt.Errorf("%w: %d experts of width %d at hidden %d exceed the limit of %d rows in a matrix", ErrModel, x.Count, x.Width,
			c.Hidden, tensorops.MaxDim)
	}
	if err := errors.Join(x.checkRouter(), x.Balance.check()); err != nil {
		return err
	}
	return c.checkLayers("layers without experts", x.Dense)
}

// expertSpec describes the experts of a layer; count 0: its feed-forward part is dense.
type expertSpec struct {
	count, perToken, width int
	renormalize            bool
	biases                 bool // of the router and of the experts
	router                 RouterConfig
	sharedWidth            int
	sharedGate             bool
	balance, zLoss         float64 // weights of this layer's balance loss and z-loss
	bySequence             bool    // the balance loss is that of each sequence
	global                 bool    // it has the loads of the step: see BalanceConfig.Global
	biasRate               float64
	jitter                 site
}

// expertLayer gives layer i experts if the Config says so.
func (c Config) expertLayer(i int, l *layerSpec) {
	x := c.Experts
	if x.none() || slices.Contains(x.Dense, i) {
		return
	}
	layers := float64(max(1, x.layers(c.Layers)+c.MTPLayers))
	l.experts = expertSpec{count: x.Count, perToken: x.PerToken, width: x.Width, renormalize: x.Renormalize, router: x.Router,
		sharedWidth: x.SharedWidth, sharedGate: x.SharedGate, balance: x.AuxLossWeight / layers, zLoss: x.Balance.ZLossWeight / layers,
		bySequence: x.Balance.BySequence, global: x.Balance.Global, biasRate: x.Balance.BiasRate, jitter: jitterSite(i, x.Balance.Jitter)}
}

// route returns the options of the router's forward, and those of its statistics over a number of sequences.
func (x expertSpec) route(sequences int) tensorops.RouteOpts {
	o := tensorops.RouteOpts{Sigmoid: x.router.Sigmoid, Renormalize: x.renormalize, Scale: x.router.Scale, Groups: x.router.Groups,
		TopGroups: x.router.TopGroups}
	if x.bySequence {
		o.Sequences = sequences
	}
	return o
}

// routeGrad returns those of its gradient. The loss is summed over the tokens, and so the gradient of the balance loss
// is that of rows·balance·E·Σ f[e]·P[e], of all rows or of those of each sequence, and that of the z-loss is of zLoss·Σ lse².
func (x expertSpec) routeGrad(rows, sequences int) tensorops.RouteOpts {
	o := x.route(sequences)
	if !x.global { // or else endLoads adds it
		o.Balance = x.balance * float64(x.count) / float64(max(rows/max(o.Sequences, 1), 1))
	}
	o.ZLoss = x.zLoss
	return o
}

// flops estimates the floating-point operations of a forward pass for one token.
func (x expertSpec) flops(hidden float64) float64 {
	return 2*hidden*float64(x.count) + 6*hidden*(float64(x.width)*float64(x.perToken)+float64(x.sharedWidth))
}

// experts adds a layer's router and experts.
func (f *decoder) experts(m *Model, spec layerSpec, at string) feedForward {
	x, n, hidden := spec.experts, f.names.experts, m.Config.Hidden
	router := parted(m.add(at+n.router+weightEnd, normalInit, x.count, hidden), byHeads)
	ffn := &expertFFN{spec: x, act: spec.act, router: router}
	bias := func(name string, dims ...int) use {
		u := m.add(at+name+biasEnd, zeros, dims...)
		u.param.Decay = false
		return u
	}
	if x.biases {
		ffn.biases = &expertBiases{router: bias(n.router, x.count)}
	}
	matrices := func(name string, init Init, out, in, dim int) (w, b use) {
		name = n.list + "." + name
		w = m.cutExperts(m.byWidth(m.add(at+name+weightEnd, init, x.count, out, in), dim))
		if x.biases {
			b = bias(name, x.count, out)
		}
		return w, b
	}
	var b expertBiases
	ffn.gate, b.gate = matrices(n.gate, normalInit, x.width, hidden, 1)
	ffn.up, b.up = matrices(n.up, normalInit, x.width, hidden, 1)
	ffn.down, b.down = matrices(n.down, m.residualInit(), hidden, x.width, 2)
	if x.biases {
		ffn.biases.gate, ffn.biases.up, ffn.biases.down = b.gate, b.up, b.down
	}
	m.cutBiases(ffn.biases)
	n.files(ffn, at, hidden)
	if x.router.Bias {
		if ffn.bias = m.loadBias(at+n.bias, x.count, x.biasRate); m.expert.Whole { // each rank counts its own rows
			ffn.bias = parted(ffn.bias, byHeads)
		}
	}
	if x.sharedWidth > 0 {
		ffn.shared = f.sharedExpert(m, spec, at)
	}
	return ffn
}

// markHidden notes the experts' matrices, each of which Muon makes orthogonal by itself.
func (f *expertFFN) markHidden() {
	for _, u := range []use{f.gate, f.up, f.down} {
		u.param.Hidden = &Matrices{Out: u.param.Whole[1], In: u.param.Whole[2], Blocks: 1}
	}
}
