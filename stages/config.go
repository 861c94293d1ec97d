package stages

import (
	"errors"
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// ErrModel: a model's sizes contradict each other.
var ErrModel = errors.New("impossible model")

// Families of models that are no language models.
const (
	MLP   = "mlp"   // dense layers, on any data with a label or a target
	Stack = "stack" // layers by name, registered ones among them
)

// Config are the sizes of a model.
type Config struct {
	Family    string // a language model's, such as GPT2 or Llama, or another
	Layers    int    // decoder layers
	Hidden    int    // C
	Heads     int    // H
	KVHeads   int    // heads of keys and values; GPT-2: H
	FFN       int    // inner width of the feed-forward part
	Context   int    // most positions of a sequence here
	Vocab     int    // V
	Dropout   float64
	Tie       bool    // the head uses the embedding's weight
	RopeTheta float64 // base of the rotary wavelengths (not gpt2)
	NormEps   float64 // 0: 1e-5
	MTPLayers int     // multi-token-prediction layers, each of which predicts a token further on in training
	MTPWeight float64 // of the mean of their losses, beside the main one
	// MaxPositions is the most positions that the weights are meant for, where it is more
	// than Context; 0: Context.
	MaxPositions int `json:",omitempty"`
	HeadDim      int `json:",omitempty"` // channels of a head; 0: Hidden/Heads
	// Window is how many positions a query sees, its own among them; 0: all. The decoder
	// layers in Full see all of them nevertheless.
	Window        int         `json:",omitempty"`
	Full          []int       `json:",omitempty"`
	AttentionBias bool        `json:",omitempty"` // of q, k, v and attention's output, where a family has the choice
	MLPBias       bool        `json:",omitempty"`
	RopeScaling   RopeScaling `json:",omitzero"`
	// Of other families than the language models: the fields of the data, the layers of a
	// stack, and what the family makes of Options.
	Fields  []Field  `json:",omitempty"`
	Layout  []string `json:",omitempty"`
	Options []string `json:",omitempty"`
}

// Field is a value that every sample of the data has.
type Field struct {
	Name    string
	DType   tensorops.DType
	Shape   []int `json:",omitempty"` // of one sample; -1: differs from sample to sample
	Classes int   `json:",omitempty"` // of a label: ids from 0 to Classes-1; 0: it is none
	// Names are those of the classes, in the order of their ids; none: they have none.
	Names []string `json:",omitempty"`
}

// Language reports whether the family is one of the language models, whose data are tokens.
func (c Config) Language() bool { return languageOf(c.Family) != nil }

// Positions is the most positions that the weights are meant for.
func (c Config) Positions() int { return max(c.Context, c.MaxPositions) }

// Validate says which number is out of its range, or which two disagree.
func (c Config) Validate() error {
	if !c.Language() {
		return c.validateOwn()
	}
	for _, f := range []struct {
		name            string
		value, min, max int
	}{
		{"layers", c.Layers, 0, MaxLayers}, {"hidden", c.Hidden, 1, MaxHidden}, {"heads", c.Heads, 1, MaxHeads},
		{"kv_heads", c.KVHeads, 1, MaxHeads},
		{"ffn", c.FFN, 1, MaxFFN}, {"context", c.Context, 1, MaxContext}, {"vocab", c.Vocab, 1, MaxVocab},
		{"max_positions", c.MaxPositions, 0, MaxContext}, {"head_dim", c.HeadDim, 0, MaxHidden}, {"mtp_layers", c.MTPLayers, 0, MaxMTPLayers},
	} {
		if f.value < f.min || f.value > f.max {
			return fmt.Errorf("%w: %s is %d, it must be %d to %d", ErrModel, f.name, f.value, f.min, f.max)
		}
	}
	switch {
	case c.HeadDim == 0 && c.Hidden%c.Heads != 0:
		return fmt.Errorf("%w: hidden %d does not divide by heads %d", ErrModel, c.Hidden, c.Heads)
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("%w: heads %d does not divide by kv_heads %d", ErrModel, c.Heads, c.KVHeads)
	case c.NormEps != 0 && !(c.NormEps >= MinNormEps && c.NormEps <= maxNormEps):
		return fmt.Errorf("%w: the norms' epsilon is %g, it must be %g to %g", ErrModel, c.NormEps, MinNormEps, float64(maxNormEps))
	case c.MaxPositions != 0 && c.MaxPositions < c.Context:
		return fmt.Errorf("%w: a context of %d is more than the model's %d positions", ErrModel, c.Context, c.MaxPositions)
	case c.MTPLayers >= c.Context:
		return fmt.Errorf("%w: %d mtp_layers look further ahead than the context of %d reaches", ErrModel, c.MTPLayers, c.Context)
	case !(c.MTPWeight >= 0) || math.IsInf(c.MTPWeight, 1):
		return fmt.Errorf("%w: mtp_weight is %g, it must be 0 or more", ErrModel, c.MTPWeight)
	case !(c.Dropout >= 0 && c.Dropout < 1):
		return fmt.Errorf("%w: dropout is %g, it must lie in [0, 1)", ErrModel, c.Dropout)
	}
	return languageOf(c.Family).check(c)
}

// headDim is D.
func (c Config) headDim() int {
	if c.HeadDim != 0 {
		return c.HeadDim
	}
	return c.Hidden / c.Heads
}

// QueryWidth is the width of queries, and of attention's output.
func (c Config) QueryWidth() int { return c.Heads * c.headDim() }

// KVWidth is the width of keys and of values.
func (c Config) KVWidth() int { return c.KVHeads * c.headDim() }

func (c Config) eps() float64 {
	if c.NormEps != 0 {
		return c.NormEps
	}
	return 1e-5
}

// Parameters is the number of weights, a tied one counted once.
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

// FLOPs estimates a forward pass's floating-point operations for one token, a
// multiply-add as two, at T positions: by symbol E, t, L, in training, where the head
// works for multi-token prediction too. The backward pass costs twice that. (Kaplan
// et al. 2020, with the head's product counted.)
func (c Config) FLOPs(positions int) (embedding, layer, head float64) {
	h, f, q, kv := float64(c.Hidden), float64(c.FFN), float64(c.QueryWidth()), float64(c.KVWidth())
	mlp := 4 * h * f
	if l := languageOf(c.Family); l != nil && l.gated() {
		mlp = 6 * h * f
	}
	layer = 2*h*(q+2*kv) + 2*q*h + mlp + 4*q*c.seen(positions)
	return 2 * h, layer, 2 * h * float64(c.Vocab) * float64(1+c.MTPLayers)
}

// MTPFLOPs is the same of the symbol m: a decoder layer, and the projection of two
// rows onto one.
func (c Config) MTPFLOPs(positions int) float64 {
	_, layer, _ := c.FLOPs(positions)
	return layer + 4*float64(c.Hidden)*float64(c.Hidden)
}
