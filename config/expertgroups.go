package config

import (
	"fmt"
	"slices"
)

// WholeExperts reports whether the ranks of tensor groups have whole experts.
func (c *Config) WholeExperts() bool {
	return c.Parallel.ExpertTensor == 1 && slices.Max(c.Parallel.Tensor) > 1
}

// expertTensor checks the number of ranks that share each expert.
func (c *checker) expertTensor() {
	n, p := c.Parallel.ExpertTensor, c.Parallel
	if !c.clean("parallel.expert_tensor") || n == 0 {
		return
	}
	refuse := func(other string, wrong bool, sentence, hint string) {
		if c.clean(other) && wrong {
			c.disagree("parallel.expert_tensor", other, sentence, hint)
		}
	}
	size, least := slices.Max(p.Tensor), slices.Min(p.Tensor)
	switch {
	case n > 1 && (n != size || n != least):
		refuse("parallel.tensor", true, fmt.Sprintf("is neither 1 nor %s", c.say("parallel.tensor")),
			"leave expert_tensor out to divide each expert as other layers, or set it to 1 for whole experts")
	case size == 1:
	case size != least:
		refuse("parallel.tensor", true, "needs one size of the tensor groups for all stages", "set tensor to one number, or leave "+
			"expert_tensor out")
	default:
		refuse("model.experts", c.Model.From == "" && c.Model.Experts == 0, "is set, but the model has no experts",
			"leave expert_tensor out, or use a family with experts")
		refuse("pipeline.post_validation", c.Pipeline.PostValidation,
			"makes ranks exchange what they route in each layer, but post_validation may stop a rank in the middle of a step",
			"set post_validation = false")
	}
}

// expertGroups checks what ranks that share experts cannot do.
func (c *checker) expertGroups() {
	c.expertTensor()
	n := c.Parallel.Expert
	if !c.clean("parallel.expert", "parallel.expert_tensor") || n == 1 {
		return
	}
	refuse := func(other string, wrong bool, sentence, hint string) {
		if c.clean(other) && wrong {
			c.disagree("parallel.expert", other, sentence, hint)
		}
	}
	copies := c.Parallel.Data * c.Parallel.Context
	if c.WholeExperts() {
		if ranks := copies * slices.Max(c.Parallel.Tensor); ranks%n > 0 {
			c.disagree("parallel.expert", "parallel.data", fmt.Sprintf("does not divide the %d ranks with the same layers "+
				"(parallel.tensor × parallel.data × parallel.context)", ranks), "use a divisor of that number, or more replicas")
			return
		}
	} else if copies%n > 0 {
		c.disagree("parallel.expert", "parallel.data", fmt.Sprintf("does not divide the %d ranks with the same layers (parallel.data × "+
			"parallel.context)", copies), "use a divisor of that number, or more replicas")
		return
	}
	if m := c.Model; m.From == "" {
		refuse("model.experts", m.Experts == 0, "is set, but the model has no experts", "leave expert out, or use a family with experts")
		refuse("model.experts", m.Experts%n > 0, fmt.Sprintf("does not divide %s", c.say("model.experts")),
			"use a divisor of the number of experts")
	}
	if k := c.Batch.Sequences / max(c.Batch.Microbatch, 1); c.clean("batch.sequences", "batch.microbatch") && k >= c.Parallel.Data {
		refuse("parallel.data", k%c.Parallel.Data > 0,
			fmt.Sprintf("needs replicas with equally many microbatches, but %d microbatches a step are not divisible by %s", k,
				c.say("parallel.data")), "change batch.sequences or batch.microbatch")
	}
	refuse("pipeline.post_validation", c.Pipeline.PostValidation,
		"makes ranks exchange tokens in each layer, but post_validation may stop a rank in the middle of a step",
		"set post_validation = false")
	refuse("optimizer.state_dtype", c.Optimizer.StateDType == StateInt8, fmt.Sprintf("would split the blocks of %s",
		c.say("optimizer.state_dtype")), `set state_dtype = "bfloat16"`)
}

// MeetsInPasses reports whether replicas wait for each other in the passes of a microbatch: with ZeRO-3, or to exchange
// tokens of experts. They must then compute equally many microbatches, also in a validation.
func (c *Config) MeetsInPasses() bool { return c.SharesWeights() || c.Parallel.Expert > 1 }
