package config

import (
	"fmt"

	"github.com/troupe-ml/troupe/stages"
)

// Distillation returns the loss of the section [distill]; nil: the run has no teacher.
func (c *Config) Distillation() *stages.Distill {
	if c.Distill.From == "" {
		return nil
	}
	d := c.Distill
	return &stages.Distill{Loss: d.Loss, TopK: d.TopK, Temperature: d.Temperature, Weight: d.Weight}
}

// The words about keys of [distill] without a teacher.
const (
	distillIsOff = ": the run has no teacher"
	distillHint  = "set distill.from, or leave the section [distill] out"
)

func noTeacher(c *Config) bool { return c.Distill.From == "" }

// distill checks what cannot be combined with [distill].
func (c *checker) distill() {
	if !c.clean("distill.from") || c.Distill.From == "" {
		return
	}
	refuse := func(key string, wrong bool, sentence, hint string) {
		if c.clean(key) && wrong {
			c.disagree("distill.from", key, sentence, hint)
		}
	}
	refuse("data.format", !c.Documents(), fmt.Sprintf("needs documents with prompts, but %s", c.say("data.format")),
		`set data.format = "documents"`)
	refuse("data.packing", c.Data.Packing != PackNone, "cannot be combined with "+c.say("data.packing"), "leave packing out")
	refuse("data.stream", c.Data.Stream, "cannot be combined with data.stream", "leave stream out")
	refuse("model.mtp_layers", c.Model.MTPLayers > 0, "cannot be combined with multi-token prediction ("+c.say("model.mtp_layers")+")",
		"leave mtp_layers out")
	refuse("model.aux_loss_weight", c.Model.Experts > 0 && c.Model.AuxLossWeight > 0,
		fmt.Sprintf("cannot be combined with the balance loss of experts, but %s", c.say("model.aux_loss_weight")),
		"set aux_loss_weight = 0.0")
	refuse("preference.loss", c.Preference.Loss != "", "cannot be combined with "+c.say("preference.loss"), "use one of the sections")
	refuse("parallel.context", c.Parallel.Context > 1, "cannot be combined with "+c.say("parallel.context"), "use parallel.context = 1")
	for _, n := range c.Parallel.Tensor {
		refuse("parallel.tensor", n > 1, "cannot be combined with "+c.say("parallel.tensor"), "use parallel.tensor = 1")
		if n > 1 {
			break
		}
	}
	if len(c.Data.Source) > 0 {
		c.fail("distill.from", quoted(c.Distill.From)+" cannot be combined with [[data.source]]", "name all files in data.train")
	}
}
