package stages

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// ErrModel means that a model's sizes contradict each other or are out of range.
var ErrModel = errors.New("impossible model")

// The families of models that are not language models.
const (
	MLP   = "mlp"   // dense layers, on any data with a label or a target
	Stack = "stack" // layers by name, including registered ones
)

// Config holds the sizes of a model. They determine its layers and parameters.
type Config struct {
	Family    string // a language model's, such as GPT2 or Llama, or another
	Layers    int    // decoder layers
	Hidden    int    // C
	Heads     int    // H
	KVHeads   int    // heads of keys and values; GPT-2: H
	FFN       int    // inner width of the feed-forward part
	Context   int    // largest number of positions of a sequence in this run
	Vocab     int    // V
	Dropout   float64
	Tie       bool    // the head uses the embedding's weight
	RopeTheta float64 // base of the rotary wavelengths (not gpt2)
	NormEps   float64 // 0: 1e-5
	MTPLayers int     // multi-token-prediction layers; in training each predicts one token further ahead
	MTPWeight float64 // weight of the mean of their losses in the total loss
	// MaxPositions is the number of positions that the weights support, if that is more than
	// Context; 0: Context.
	MaxPositions int `json:",omitempty"`
	HeadDim      int `json:",omitempty"` // channels of a head; 0: Hidden/Heads
	// Window is the number of positions that a query attends to, including its own; 0: all. The
	// decoder layers listed in Full attend to all positions regardless.
	Window        int         `json:",omitempty"`
	Full          []int       `json:",omitempty"`
	AttentionBias bool        `json:",omitempty"` // biases of q, k, v and attention's output, if the family leaves a choice
	MLPBias       bool        `json:",omitempty"`
	RopeScaling   RopeScaling `json:",omitzero"`
	// NoRope lists the decoder layers without rotary positions, in ascending order.
	NoRope []int `json:",omitempty"`
	// WindowTheta is RopeTheta of the layers with a window, in families where they may differ; 0: the
	// same.
	WindowTheta float64 `json:",omitempty"`
	// FullHeadDim and FullKVHeads are HeadDim and KVHeads of the layers that attend to all positions, in families where these
	// may differ; 0: the same. With ValuesAreKeys these layers have no projection of values: they use that of the keys.
	FullHeadDim   int  `json:",omitempty"`
	FullKVHeads   int  `json:",omitempty"`
	ValuesAreKeys bool `json:",omitempty"`
	// LayerInput is the number of channels of an input that each decoder layer has of its own, which follows from the token and its
	// embedding; 0: layers have none.
	LayerInput int `json:",omitempty"`
	// SharedKV is the number of last decoder layers without keys and values of their own: they use those of the last layer before them
	// that is of their kind, with or without a window. With WideShared their feed-forward parts are twice as wide as FFN.
	SharedKV   int  `json:",omitempty"`
	WideShared bool `json:",omitempty"`
	// AttentionScale is the factor of attention's scores; 0: one over the root of a head's width.
	AttentionScale   float64 `json:",omitempty"`
	AttentionSoftCap float64 `json:",omitempty"` // limit of the scaled scores; 0: none
	EmbeddingScale   float64 `json:",omitempty"` // factor of the embeddings; 0: 1
	ResidualScale    float64 `json:",omitempty"` // factor of each branch before it is added; 0: 1
	LogitDivisor     float64 `json:",omitempty"` // the logits are divided by it; 0: 1
	LogitSoftCap     float64 `json:",omitempty"` // limit of the logits; 0: none
	// Delta describes the decoder layers that have the gated delta rule instead of attention.
	Delta DeltaConfig `json:",omitzero"`
	// Latent describes the attention of all layers, if it is latent attention.
	Latent LatentConfig `json:",omitzero"`
	// Experts describes the decoder layers that have a mixture of experts.
	Experts ExpertConfig `json:",omitzero"`
	// Adapter describes adapters of the linear layers; nil: there are none.
	Adapter *Adapter `json:"adapter,omitempty"`
	// For families other than language models: the fields of the data, the layers of a stack, and
	// the family's own options.
	Fields  []Field  `json:",omitempty"`
	Layout  []string `json:",omitempty"`
	Options []string `json:",omitempty"`
}

// Field describes one value that every sample of the data has.
type Field struct {
	Name    string
	DType   tensorops.DType
	Shape   []int `json:",omitempty"` // shape of one sample; -1: the size differs between samples
	Classes int   `json:",omitempty"` // for a label, the number of classes, with ids from 0 to Classes-1; 0: not a label
	// Names are the names of the classes, in the order of their ids; empty: the classes have no
	// names.
	Names []string `json:",omitempty"`
}

// Language reports whether the family is a language model, whose data is tokens.
func (c Config) Language() bool { return languageOf(c.Family) != nil }

// Positions returns the number of positions that the weights support.
func (c Config) Positions() int { return max(c.Context, c.MaxPositions) }

// Validate reports, as an ErrModel, the first number that is out of its range or contradicts
// another.
func (c Config) Validate() error {
	if !c.Language() {
		if c.Adapter != nil {
			return adapterError("rank", "adapters are for language models, but the family is %q", c.Family)
		}
		return c.validateOwn()
	}
	for _, f := range []struct {
		name            string
		value, min, max int
	}{
		{"layers", c.Layers, 0, MaxLayers}, {"hidden", c.Hidden, 1, MaxHidden}, {"heads", c.Heads, 1, MaxHeads},
		{"kv_heads", c.KVHeads, 1, MaxHeads},
		{"ffn", c.FFN, 1, MaxFFN}, {"context", c.Context, 1, MaxContext}, {"vocab", c.Vocab, 1, MaxVocab},
		{"max_positions", c.MaxPositions, 0, MaxContext}, {"head_dim", c.HeadDim, 0, MaxHidden},
		{"mtp_layers", c.MTPLayers, 0, MaxMTPLayers},
		{"head_dim of the layers without a window", c.FullHeadDim, 0, MaxHidden},
		{"kv_heads of the layers without a window", c.FullKVHeads, 0, MaxHeads},
		{"number of channels of each layer's own input", c.LayerInput, 0, MaxHidden},
		{"number of layers that share keys and values", c.SharedKV, 0, MaxLayers},
	} {
		if f.value < f.min || f.value > f.max {
			return fmt.Errorf("%w: %s is %d: it must be from %d to %d", ErrModel, f.name, f.value, f.min, f.max)
		}
	}
	switch {
	case c.HeadDim == 0 && c.Latent.none() && c.Hidden%c.Heads != 0:
		return fmt.Errorf("%w: hidden %d is not a multiple of heads %d", ErrModel, c.Hidden, c.Heads)
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("%w: heads %d is not a multiple of kv_heads %d", ErrModel, c.Heads, c.KVHeads)
	case c.NormEps != 0 && !(c.NormEps >= MinNormEps && c.NormEps <= maxNormEps):
		return fmt.Errorf("%w: the norms' epsilon is %g: it must be from %g to %g", ErrModel, c.NormEps, MinNormEps, float64(maxNormEps))
	case c.MaxPositions != 0 && c.MaxPositions < c.Context:
		return fmt.Errorf("%w: context is %d, but the model has only %d positions", ErrModel, c.Context, c.MaxPositions)
	case c.MTPLayers >= c.Context:
		return fmt.Errorf("%w: mtp_layers is %d, which predicts beyond the context of %d", ErrModel, c.MTPLayers, c.Context)
	case !(c.MTPWeight >= 0) || math.IsInf(c.MTPWeight, 1):
		return fmt.Errorf("%w: mtp_weight is %g: it must be 0 or more", ErrModel, c.MTPWeight)
	case !(c.Dropout >= 0 && c.Dropout < 1):
		return fmt.Errorf("%w: dropout is %g: it must be at least 0 and below 1", ErrModel, c.Dropout)
	}
	if err := c.checkSwitches(); err != nil {
		return err
	}
	if c.Adapter != nil {
		if err := c.Adapter.check(); err != nil {
			return err
		}
	}
	return languageOf(c.Family).check(c)
}

// checkSwitches checks the switches that some families have.
func (c Config) checkSwitches() error {
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"scale of attention's scores", c.AttentionScale}, {"soft cap of attention's scores", c.AttentionSoftCap},
		{"factor of the embeddings", c.EmbeddingScale}, {"factor of the residual branches", c.ResidualScale},
		{"divisor of the logits", c.LogitDivisor}, {"soft cap of the logits", c.LogitSoftCap},
	} {
		if !isFactor(f.value) {
			return fmt.Errorf("%w: the %s is %g: it must be from %g to %g", ErrModel, f.name, f.value, minFactor, maxFactor)
		}
	}
	if t := c.WindowTheta; t != 0 && !(t >= MinRopeTheta && t <= MaxRopeTheta) {
		return fmt.Errorf("%w: the %s is %g: it must be from %g to %g", ErrModel, windowThetaSwitch, t, float64(MinRopeTheta), MaxRopeTheta)
	}
	if err := errors.Join(c.checkDelta(), c.checkLatent(), c.checkExperts()); err != nil {
		return err
	}
	return c.checkLayers(noRopeSwitch, c.NoRope)
}

// checkLayers checks a list of decoder layers.
func (c Config) checkLayers(what string, list []int) error {
	for i, layer := range list {
		if layer < 0 || layer >= c.Layers || i > 0 && layer <= list[i-1] {
			return fmt.Errorf("%w: the %s are %d: they must be in ascending order and below %d", ErrModel, what, list, c.Layers)
		}
	}
	return nil
}

// The names of switches that messages use.
const (
	noRopeSwitch      = "layers without rotary positions"
	windowThetaSwitch = "rope_theta of the layers with a window"
	partialSwitch     = "partial rotary positions"
	fullHeadSwitch    = "head width of the layers without a window"
	fullKVSwitch      = "number of kv heads of the layers without a window"
	valuesSwitch      = "values that are keys"
	inputSwitch       = "inputs of each layer"
	sharedKVSwitch    = "layers that share keys and values"
	wideSwitch        = "wider feed-forward parts of layers that share keys and values"
)

// switches names the settings that only some families have and that are not their usual values.
func (c Config) switches() (names []string) {
	own := c.Experts.switches()
	maps.Copy(own, map[string]bool{
		deltaSwitch: !c.Delta.none(), expertSwitch: !c.Experts.none(), latentSwitch: !c.Latent.none(),
		gateSwitch:   c.Experts.GateLimit != 0 || c.Experts.GateAlpha != 0,
		noRopeSwitch: len(c.NoRope) > 0, windowThetaSwitch: c.WindowTheta != 0, partialSwitch: c.RopeScaling.Partial != 0,
		"attention scale":    c.AttentionScale != 0,
		"attention soft cap": c.AttentionSoftCap != 0,
		"embedding factor":   c.EmbeddingScale != 0, "residual factor": c.ResidualScale != 0, "logit divisor": c.LogitDivisor != 0,
		"logit soft cap": c.LogitSoftCap != 0, fullHeadSwitch: c.FullHeadDim != 0, fullKVSwitch: c.FullKVHeads != 0,
		valuesSwitch: c.ValuesAreKeys, inputSwitch: c.LayerInput != 0, sharedKVSwitch: c.SharedKV != 0, wideSwitch: c.WideShared,
	})
	for name, set := range own {
		if set {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// onlySwitches refuses the switches that a family does not have.
func (c Config) onlySwitches(has []string) error {
	for _, name := range c.switches() {
		if !slices.Contains(has, name) {
			return fmt.Errorf("%w: %s has no %s: leave it out", ErrModel, c.Family, name)
		}
	}
	return nil
}

// SetDefaults sets the switches of a model that is trained from scratch to its family's own, given
// its sizes.
func (c *Config) SetDefaults() {
	if f := languageOf(c.Family); f != nil {
		f.defaults(c)
	}
}

// headDim returns D, the channels of a head of queries and keys.
func (c Config) headDim() int {
	if !c.Latent.none() {
		return c.Latent.width()
	}
	if c.HeadDim != 0 {
		return c.HeadDim
	}
	return c.Hidden / c.Heads
}

// QueryWidth returns the width of the queries, which is also that of attention's output unless it is latent.
func (c Config) QueryWidth() int { return c.Heads * c.headDim() }

// KVWidth returns the width of the keys and of the values.
func (c Config) KVWidth() int { return c.KVHeads * c.headDim() }

func (c Config) eps() float64 {
	if c.NormEps != 0 {
		return c.NormEps
	}
	return 1e-5
}

// Parameters returns the number of weights; a tied weight counts once.
func (c Config) Parameters() int64 {
	m, err := NewModel(c)
	if err != nil {
		return 0
	}
	var n int64
	for _, p := range m.Params {
		n += int64(p.Len())
	}
	return n
}

// FLOPs estimates the floating-point operations of a forward pass for one token at a sequence
// length of positions, by symbol: E, t and L; t is the mean of the decoder layers. A multiply-add
// counts as two. The head's number is that of training, where it also serves multi-token
// prediction. The backward pass costs twice as much. (Kaplan et al. 2020, plus the head's product.)
func (c Config) FLOPs(positions int) (embedding, layer, head float64) {
	h := float64(c.Hidden)
	inputs := float64(c.Layers) * float64(c.LayerInput)
	return 2*h + 2*h*inputs, c.layerFLOPs(positions), 2 * h * float64(c.Vocab) * float64(1+c.MTPLayers)
}

// layerFLOPs returns the mean of the decoder layers.
func (c Config) layerFLOPs(positions int) float64 {
	if !c.Language() { // only language models have decoder layers
		return 0
	}
	var sum, first float64
	same := true
	for i := range max(c.Layers, 1) {
		l := c.layer(i)
		one := l.flops(c.Hidden, positions)
		if i == 0 {
			first = one
		}
		sum, same = sum+one, same && one == first
	}
	if same {
		return first
	}
	return sum / float64(c.Layers)
}

// MTPFLOPs returns the same for the symbol m: a decoder layer, and the projection of two rows to
// one.
func (c Config) MTPFLOPs(positions int) float64 {
	_, layer, _ := c.FLOPs(positions)
	return layer + 4*float64(c.Hidden)*float64(c.Hidden)
}
