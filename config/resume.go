package config

import (
	"slices"

	"github.com/troupe-ml/troupe/stages"
)

// rateKeys are the keys of the learning rate over time. A resume may change them, and the run's journal records it.
var rateKeys = []string{"optimizer.lr", "optimizer.min_lr", "optimizer.warmup_steps", "optimizer.decay", "optimizer.decay_steps",
	"optimizer.points"}

// decays are the values of optimizer.decay.
var decays = []string{stages.Cosine, stages.Linear, stages.Constant, stages.WSD, stages.CosineRestarts, stages.InverseSqrt, stages.Points}

// usesDecaySteps reports whether a decay depends on optimizer.decay_steps.
func usesDecaySteps(decay string) bool {
	return decay == stages.WSD || decay == stages.CosineRestarts || decay == stages.InverseSqrt
}

// IsRateKey reports whether the learning rate over time follows from a key. run.steps is one of them if the rate decays.
func IsRateKey(key string) bool { return key == "run.steps" || slices.Contains(rateKeys, key) }

// WithDefaultsOf returns a copy of the configuration that takes some values from the stored configuration of the same run:
// those that follow from the run's length, that have changed since the run started, or that belong to the learning rate. It is
// validated.
//
// A key of the learning rate counts as not given if it has its default, unless --set gives it: engine init writes some
// defaults into the file, and a resume without the --set of the start must not move the rate.
func (c *Config) WithDefaultsOf(stored *Config) (*Config, error) {
	own := *c.clone()
	for _, key := range rateKeys {
		f := lookup(key)
		if c.asked(f) {
			continue
		}
		if key == "optimizer.min_lr" && c.asked(lookup("optimizer.lr")) {
			// The floor follows the peak, as it did in the stored configuration.
			if own.Optimizer.MinLR = own.Optimizer.LR / 10; stored.Optimizer.MinLR != stored.Optimizer.LR/10 {
				own.Optimizer.MinLR = min(stored.Optimizer.MinLR, own.Optimizer.LR)
			}
			continue
		}
		f.store(&own, f.load(stored))
	}
	if !usesDecaySteps(own.Optimizer.Decay) {
		own.Optimizer.DecaySteps = 0
	}
	if own.Optimizer.Decay != stages.Points {
		own.Optimizer.Points = nil
	} else if c.asked(lookup("optimizer.points")) { // what is stored belongs to other points
		own.rateOfPoints(func(string) bool { return false })
	}
	if !c.IsSet("data.special_tokens") && c.Text() && c.IDBytes() == 0 {
		own.Data.SpecialTokens = stored.Data.SpecialTokens // runs older than the key read names as text
	}
	return &own, own.Validate()
}

// asked reports whether somebody chose the value of a key: by --set, or a value other than the default in a file or in Go code.
func (c *Config) asked(f *field) bool {
	return c.given[f.key].Set != "" || render(f.load(c)) != render(c.usual(f))
}

// Kept returns the keys of the learning rate whose value in c WithDefaultsOf has replaced, with the values of c and those
// in own. Keys without a value in the
// configuration, whose default follows from other keys, are left out, except a warm-up that is longer than the run.
func (c *Config) Kept(own *Config) []Change {
	return diff(c, own, func(f *field) bool {
		return slices.Contains(rateKeys, f.key) && (c.IsSet(f.key) || f.key == "optimizer.lr" ||
			f.key == "optimizer.warmup_steps" && own.Optimizer.WarmupSteps > c.Run.Steps)
	})
}

// Moved returns the keys that differ between the stored configuration of a run and the present one, except paths. A
// default that follows from another key that differs is left out.
func Moved(stored, now *Config) []Change {
	changes := diff(stored, now, func(f *field) bool { return !f.path && !now.isOpen(f) })
	return now.userChanges(changes)
}

// userChanges leaves out defaults that differ because another key differs.
func (c *Config) userChanges(changes []Change) []Change {
	differs := func(key string) bool {
		return slices.ContainsFunc(changes, func(ch Change) bool { return ch.Key == key })
	}
	return slices.DeleteFunc(slices.Clone(changes), func(ch Change) bool {
		return !c.IsSet(ch.Key) && slices.ContainsFunc(defaultsFrom[ch.Key], differs)
	})
}
