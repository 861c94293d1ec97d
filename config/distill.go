package config

import "github.com/troupe-ml/troupe/stages"

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
	refuse := c.wholeDocuments("distill.from", "prompts", "")
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
