package config

import (
	"fmt"

	"github.com/troupe-ml/troupe/stages"
)

// The defaults of a family with experts.
const (
	defaultExperts         = 8
	defaultExpertsPerToken = 2
)

// resolveExperts sets the keys of experts that were not given.
func (c *Config) resolveExperts() {
	m := &c.Model
	if !c.IsSet("model.experts") && stages.HasExperts(m.Family) {
		m.Experts = defaultExperts
	}
	if m.Experts == 0 {
		return
	}
	if !c.IsSet("model.experts_per_token") {
		m.ExpertsPerToken = min(defaultExpertsPerToken, m.Experts)
	}
	if !c.IsSet("model.expert_ffn") {
		m.ExpertFFN = m.FFN
	}
}

// experts checks the keys of experts against the others.
func (c *checker) experts() {
	m := c.Model
	if !c.clean("model.family", "model.experts", "model.experts_per_token", "model.expert_ffn", "model.ffn") {
		return
	}
	switch has := stages.HasExperts(m.Family); {
	case has && m.Experts == 0:
		c.disagree("model.experts", "model.family", fmt.Sprintf("is too few: %s has experts", c.say("model.family")),
			`set experts, or use a family without them, such as "qwen3"`)
	case !has && m.Experts > 0:
		c.disagree("model.experts", "model.family", fmt.Sprintf("is set, but %s has no experts", c.say("model.family")),
			`leave experts out, or set family = "qwen3_moe"`)
	case m.Experts == 0 && m.ExpertsPerToken > 0:
		c.disagree("model.experts_per_token", "model.experts", "has no effect: there are no experts",
			"leave experts_per_token out, or set experts")
	case m.Experts == 0 && m.ExpertFFN > 0:
		c.disagree("model.expert_ffn", "model.experts", "has no effect: there are no experts", "leave expert_ffn out, or set experts")
	case m.Experts == 0:
	case m.ExpertsPerToken < 1 || m.ExpertsPerToken > m.Experts:
		c.disagree("model.experts_per_token", "model.experts", fmt.Sprintf("must be from 1 to %s", c.say("model.experts")),
			"reduce experts_per_token, or raise experts")
	case m.ExpertFFN < 1:
		c.disagree("model.expert_ffn", "model.experts", "is too small", "set it to 1 or more")
	case (m.Family == stages.Mixtral || m.Family == stages.GPTOSS) && m.ExpertFFN != m.FFN:
		c.disagree("model.expert_ffn", "model.ffn",
			fmt.Sprintf("differs from %s, but in %s they are the same", c.say("model.ffn"), m.Family), "leave expert_ffn out")
	}
}
