package fit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/config"
)

// method is what is trained, and in which type the rest is held.
type method struct {
	name     string // in words
	adapter  bool
	frozen   string // model.frozen_dtype; "": the default
	settings []config.Setting
}

// rank is that of the adapters: enough for most tunings, and a percent or so of the model.
const rank = 16

// adapterRate is the learning rate of adapters, which take a higher one than whole models.
const adapterRate = 2e-4

// methods are tried in this order: each needs less memory than the one before, and learns at most as much.
func methods() []method {
	adapter := func(more ...config.Setting) []config.Setting {
		return append([]config.Setting{
			{Key: "adapter.rank", Value: rank, Note: "Low-rank adapters (LoRA) are trained, the base is not; engine export --merge adds them to it"},
			{Key: "optimizer.lr", Value: adapterRate, Note: "Peak learning rate; adapters take a higher one than whole models"},
		}, more...)
	}
	return []method{
		{name: "all weights"},
		{name: "adapters", adapter: true, settings: adapter()},
		{name: "adapters, base in 8 bits", adapter: true, frozen: config.FrozenInt8, settings: adapter(config.Setting{Key: "model.frozen_dtype",
			Value: config.FrozenInt8, Note: "The base's linear layers in 8 bits"})},
		{name: "adapters, base in 4 bits", adapter: true, frozen: config.FrozenNF4, settings: adapter(config.Setting{Key: "model.frozen_dtype",
			Value: config.FrozenNF4, Note: "The base's linear layers in 4 bits, as QLoRA has them"})},
	}
}

// AllWeights takes adapter.rank=0 out of the values of --set. It means that all weights are trained, which no key of a configuration says.
func AllWeights(sets []string) (rest []string, all bool) {
	isRank := func(set string) bool { return keyOf(set) == "adapter.rank" }
	for _, set := range sets {
		if _, value, _ := strings.Cut(set, "="); isRank(set) { // the last one counts
			all = strings.TrimSpace(value) == "0"
		}
	}
	if !all {
		return sets, false
	}
	return slices.DeleteFunc(slices.Clone(sets), isRank), true
}

// is reports whether a configuration trains by this method.
func (m method) is(c *config.Config) bool {
	frozen := c.Model.FrozenDType
	if frozen != config.FrozenInt8 && frozen != config.FrozenNF4 {
		frozen = ""
	}
	return m.adapter == (c.LoRA() != nil) && m.frozen == frozen
}

// leastContext is the shortest context that is tried if the data would fill a longer one.
const leastContext = 128

// contexts are the lengths of sequences to try, the longest first.
func contexts(most int) []int {
	all := []int{most}
	for most /= 2; most >= leastContext; most /= 2 {
		all = append(all, most)
	}
	return all
}

// part is how a step is divided.
type part struct {
	microbatch int
	recompute  bool
}

// parts are tried in this order: smaller microbatches first, since recomputation takes a third more time.
func parts(sequences int) (all []part) {
	for _, recompute := range []bool{false, true} {
		for m := min(4, sequences); m >= 1; m /= 2 {
			if sequences%m == 0 {
				all = append(all, part{m, recompute})
			}
		}
	}
	return all
}

func (p part) settings() []config.Setting {
	all := []config.Setting{{Key: "batch.microbatch", Value: p.microbatch, Note: "Sequences that are computed at a time"}}
	if p.recompute {
		all = append(all, config.Setting{Key: "pipeline.recompute", Value: "full",
			Note: "Activations are computed again in the backward pass, which takes memory for time"})
	}
	return all
}

// shape describes an option in words.
func shape(c *config.Config) string {
	text := fmt.Sprintf("context %d, microbatch %d", c.Model.Context, c.Batch.Microbatch)
	switch c.Pipeline.Recompute {
	case "full":
		text += ", recomputation"
	case "partial":
		text += ", partial recomputation"
	}
	return text
}
