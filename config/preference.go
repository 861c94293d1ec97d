package config

import (
	"fmt"

	"github.com/troupe-ml/troupe/stages"
)

// PreferenceLoss returns the loss of the section [preference]; nil: the run learns tokens.
func (c *Config) PreferenceLoss() *stages.Preference {
	p := c.Preference
	if p.Loss == "" {
		return nil
	}
	return &stages.Preference{Loss: p.Loss, Beta: p.Beta, LabelSmoothing: p.LabelSmoothing, Gamma: p.Gamma,
		DesirableWeight: p.DesirableWeight, UndesirableWeight: p.UndesirableWeight}
}

// usualBeta is the default of preference.beta: that of TRL, or for SimPO the lowest that its paper used.
func usualBeta(loss string) float64 {
	if loss == stages.SimPO {
		return 2
	}
	return 0.1
}

// usualMicrobatch is the default of batch.microbatch: up to 4 sequences, and with [preference] whole pairs if possible.
func (c *Config) usualMicrobatch() int {
	n := defaultMicrobatch
	for n > 1 && (c.Batch.Sequences%n != 0 || c.Preference.Loss != "" && n%2 != 0) {
		n--
	}
	return n
}

// The words about keys of [preference] without a loss.
const (
	preferenceIsOff = ": the run does not learn from preferences"
	preferenceHint  = "set preference.loss, or leave the section [preference] out"
)

// notLoss reports that the loss is none of these.
func notLoss(losses ...string) func(*Config) bool {
	return func(c *Config) bool {
		for _, loss := range losses {
			if c.Preference.Loss == loss {
				return false
			}
		}
		return true
	}
}

// preference checks what cannot be combined with [preference].
func (c *checker) preference() {
	if !c.clean("preference.loss") || c.Preference.Loss == "" {
		return
	}
	refuse := c.wholeDocuments("preference.loss", "answers", ": each answer is a sequence")
	if c.Documents() && len(c.Data.Source) > 0 {
		c.fail("preference.loss", quoted(c.Preference.Loss)+" cannot be combined with [[data.source]]", "name all files in data.train")
	}
	if len(c.Eval) > 0 {
		c.fail("preference.loss", quoted(c.Preference.Loss)+" cannot be combined with [[eval]], whose losses are those of tokens",
			"validate on data.val, whose documents have answers")
	}
	refuse("batch.microbatch", c.Batch.Microbatch%2 != 0, fmt.Sprintf("needs whole pairs of sequences in each microbatch, but %s",
		c.say("batch.microbatch")), "make batch.sequences and batch.microbatch even")
}
