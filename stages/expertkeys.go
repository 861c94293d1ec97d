package stages

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// expertKeys are the keys of experts until all are read.
type expertKeys struct {
	count, perToken, width, every    said[int]
	perTokenAgain                    said[int]
	shared, first, groups, topGroups said[int] // the shared expert's width or number, first layers without experts
	scale                            said[float64]
	renormalize                      said[bool]
	dense                            []int
}

// denseLayers reads the layers without experts.
func (k *expertKeys) denseLayers(key string, v json.RawMessage) error {
	if string(v) == "null" {
		return nil
	}
	if err := json.Unmarshal(v, &k.dense); err != nil || slices.ContainsFunc(k.dense, func(i int) bool { return i < 0 || i >= MaxLayers }) {
		return fmt.Errorf("%s is %s: it must be a list of layers, each a whole number from 0", key, show(v))
	}
	return nil
}

// config returns the sizes of a model with a number of layers.
func (k *expertKeys) config(layers int) ExpertConfig {
	x := ExpertConfig{Count: k.count.value, PerToken: k.perToken.value, Width: k.width.value, Renormalize: k.renormalize.value}
	for i := range layers {
		if slices.Contains(k.dense, i) || (i+1)%k.every.value != 0 {
			x.Dense = append(x.Dense, i)
		}
	}
	return x
}

// trainingOfExperts are keys that only training reads: whether the model returns the router's logits, and the weight of
// a loss, which is a setting of a run here.
var trainingOfExperts = keySet{
	rules: func(*reading) rules {
		return rules{"output_router_logits": neutral, "router_aux_loss_coef": orNull(number(new(said[float64]), 0, maxFactor))}
	},
	write: func(c Config, h *hfWritten) {
		h.add("router_aux_loss_coef", floatText(c.Experts.AuxLossWeight))
	},
}

// floatText writes a number that transformers 5 takes for one that need not be whole.
func floatText(v float64) json.RawMessage {
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return json.RawMessage(text)
}

// scale returns the factor of the weights of a token's experts.
func (x ExpertConfig) scale() float64 {
	if x.Router.Scale == 0 {
		return 1
	}
	return x.Router.Scale
}

// ExpertTraits says which settings of experts the models of a family have.
type ExpertTraits struct {
	Any           bool // their layers have experts
	Shared        bool // a shared expert
	DenseFirst    bool // first layers without experts
	SparseStep    bool // experts in every nth layer
	Norms         bool // the weights of a token's experts are divided by their sum, or not
	UsuallyNormed bool // they are, unless a configuration says otherwise
	Scales        bool // a factor of these weights
	Groups        bool
	Bias          bool // a bias of the router, which only balancing moves
}

// ExpertTraitsOf returns those of a family; the zero value if it has no experts.
func ExpertTraitsOf(family string) ExpertTraits {
	if f, ok := languageOf(family).(*decoder); ok {
		return f.traits
	}
	return ExpertTraits{}
}

// HasExperts reports whether layers of a family have experts.
func HasExperts(family string) bool { return ExpertTraitsOf(family).Any }

// DenseLayers returns those of N layers without experts, if the first ones have none, and then all but each step-th.
func DenseLayers(layers, first, step int) (dense []int) {
	for i := range layers {
		if i < first || (i+1)%max(step, 1) != 0 {
			dense = append(dense, i)
		}
	}
	return dense
}

// DensePattern returns the numbers from which DenseLayers makes a list, as far as a family has them; 0 and 1 if there are none.
func DensePattern(layers int, dense []int, t ExpertTraits) (first, step int) {
	if t.DenseFirst && slices.Equal(dense, DenseLayers(layers, len(dense), 1)) {
		return len(dense), 1
	}
	for step := 2; t.SparseStep && step <= layers; step++ {
		if slices.Equal(dense, DenseLayers(layers, 0, step)) {
			return 0, step
		}
	}
	return 0, 1
}

// needExperts refuses a model of a family with experts that has none.
func (c Config) needExperts() error {
	if c.Experts.none() {
		return fmt.Errorf("%w: %s has experts, but their number is not set", ErrModel, c.Family)
	}
	return nil
}
