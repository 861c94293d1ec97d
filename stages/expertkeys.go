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
	count, perToken, width, every said[int]
	perTokenAgain                 said[int]
	renormalize                   said[bool]
	dense                         []int
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
		text := strconv.FormatFloat(c.Experts.AuxLossWeight, 'g', -1, 64)
		if !strings.ContainsAny(text, ".e") { // transformers 5 refuses a whole number
			text += ".0"
		}
		h.add("router_aux_loss_coef", json.RawMessage(text))
	},
}

// HasExperts reports whether layers of a family have experts.
func HasExperts(family string) bool {
	return family == Qwen3MoE || family == Mixtral || family == GPTOSS
}

// needExperts refuses a model of a family with experts that has none.
func (c Config) needExperts() error {
	if c.Experts.none() {
		return fmt.Errorf("%w: %s has experts, but their number is not set", ErrModel, c.Family)
	}
	return nil
}
