package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/stages"
)

// LoRA returns the adapters of the section [adapter]; nil: there are none.
func (c *Config) LoRA() *stages.Adapter {
	a := c.Adapter
	if a.Rank == 0 {
		return nil
	}
	l := &stages.Adapter{Rank: a.Rank, Alpha: a.Alpha, Dropout: a.Dropout, Targets: slices.Clone(a.Targets), RSLoRA: a.RSLoRA, DoRA: a.DoRA,
		Save: slices.Clone(a.Save)}
	for _, entry := range a.RankPattern {
		if l.RankPattern == nil {
			l.RankPattern = make(map[string]int)
		}
		pattern, value := adapterPattern(entry)
		l.RankPattern[pattern], _ = strconv.Atoi(value) // checked
	}
	for _, entry := range a.AlphaPattern {
		if l.AlphaPattern == nil {
			l.AlphaPattern = make(map[string]float64)
		}
		pattern, value := adapterPattern(entry)
		l.AlphaPattern[pattern], _ = strconv.ParseFloat(value, 64)
	}
	return l
}

// WithAdapter returns a copy of the configuration with the adapter of adapter.from, and validates it. A key of the section that was
// given must have the same value.
func (c *Config) WithAdapter(a *stages.Adapter) (*Config, error) {
	source, own := &Config{Adapter: Adapter{Rank: a.Rank, Alpha: a.Alpha, Dropout: a.Dropout, Targets: a.Targets, RSLoRA: a.RSLoRA,
		DoRA: a.DoRA, Save: a.Save}}, *c
	for _, pattern := range slices.Sorted(maps.Keys(a.RankPattern)) {
		source.Adapter.RankPattern = append(source.Adapter.RankPattern, fmt.Sprintf("%s=%d", pattern, a.RankPattern[pattern]))
	}
	for _, pattern := range slices.Sorted(maps.Keys(a.AlphaPattern)) {
		value := strconv.FormatFloat(a.AlphaPattern[pattern], 'g', -1, 64)
		source.Adapter.AlphaPattern = append(source.Adapter.AlphaPattern, pattern+"="+value)
	}
	var errs Errors
	for i := range schema {
		f := &schema[i]
		if f.section() != "adapter" || f.key == "adapter.from" {
			continue
		}
		theirs, ours := render(f.load(source)), render(f.load(c))
		if c.IsSet(f.key) && ours != theirs {
			err := c.Errorf(f.key, "%s, but the adapter in adapter.from has %s", ours, theirs)
			err.Hint = "leave the key out, or train a new adapter without adapter.from"
			errs = append(errs, err)
			continue
		}
		f.store(&own, f.load(source))
	}
	if len(errs) > 0 {
		return nil, errs.sorted()
	}
	return &own, own.Validate()
}

// Freezes reports whether some weights are not trained.
func (c *Config) Freezes() bool { return len(c.Model.Freeze) > 0 || !noAdapter(c) }

// adapterPattern splits an entry of adapter.rank_pattern or adapter.alpha_pattern at its last "=": a regular expression may have some.
func adapterPattern(entry string) (pattern, value string) {
	at := strings.LastIndexByte(entry, '=')
	if at < 0 {
		return entry, ""
	}
	return entry[:at], entry[at+1:]
}

// adapterPatterns checks adapter.rank_pattern, whose numbers are integers, or adapter.alpha_pattern.
func adapterPatterns(integers bool, each *check) *check {
	number := func(text string) (any, error) {
		if integers {
			return strconv.ParseInt(text, 10, 64)
		}
		return strconv.ParseFloat(text, 64)
	}
	return &check{`entries such as "q_proj=16", each with a number: ` + each.allows, func(v any) (string, string) {
		list := v.([]string)
		if problem, hint := listUpTo(maxOptions, textUpTo(maxOptionBytes)).judge(list); problem != "" {
			return problem, hint
		}
		seen := make(map[string]string)
		for _, entry := range list {
			pattern, text := adapterPattern(entry)
			n, err := number(text)
			if pattern == "" || err != nil {
				return quoted(entry) + " is not a pattern and a number", `write PATTERN=NUMBER, such as "q_proj=16"`
			}
			if other, twice := seen[pattern]; twice {
				return fmt.Sprintf("%q is given twice: as %s and as %s", pattern, other, text), "keep one of them"
			}
			seen[pattern] = text
			if problem, hint := each.judge(n); problem != "" {
				return quoted(entry) + ": " + problem, hint
			}
		}
		return "", ""
	}}
}

// Values of model.frozen_dtype.
const (
	FrozenAuto = "auto"
	FrozenInt8 = "int8"
	FrozenNF4  = "nf4"
)

// The words about keys of [adapter] without a rank.
const (
	adapterIsOff = ": there are no adapters"
	adapterHint  = "set adapter.rank, or leave the section [adapter] out"
)

func noAdapter(c *Config) bool { return c.Adapter.Rank == 0 && c.Adapter.From == "" }

func (c *checker) adapter() {
	if !c.clean("adapter.rank", "adapter.from", "model.from", "model.freeze") {
		return
	}
	rank := c.Adapter.Rank
	switch from := c.Adapter.From != ""; {
	case from && c.Model.From == "":
		c.disagree("adapter.from", "model.from", "needs a base model, whose weights stay frozen, but model.from is empty",
			"set model.from to the base of the adapter")
	case from && len(c.Model.Freeze) > 0:
		c.disagree("adapter.from", "model.freeze", "freezes all weights of the base, so "+c.say("model.freeze")+" has no effect",
			"leave freeze out")
	case from:
	case rank == 0 && c.IsSet("adapter.rank") && c.Model.From != "": // engine init writes all keys with their defaults
		c.fail("adapter.rank", "0 adds no weights to train", "use a rank such as 16, or leave the section [adapter] out")
	case rank > 0 && c.Model.From == "":
		c.disagree("adapter.rank", "model.from", "needs a base model, whose weights stay frozen, but model.from is empty",
			"set model.from to a model, or leave the section [adapter] out to train all weights")
	case rank > 0 && len(c.Model.Freeze) > 0:
		c.disagree("adapter.rank", "model.freeze", "freezes all weights of the base, so "+c.say("model.freeze")+" has no effect",
			"leave freeze out, and choose the layers with adapter.targets")
	}
	if of := c.Model.FrozenDType; c.clean("model.frozen_dtype") && rank == 0 && len(c.Model.Freeze) > 0 &&
		(of == FrozenInt8 || of == FrozenNF4) {
		c.disagree("model.frozen_dtype", "model.freeze",
			"is for a base with adapters: a checkpoint of this run stores frozen weights, and would lose bits",
			`use "bfloat16", or set adapter.rank instead of freeze`)
	}
	if c.clean("adapter.dora", "adapter.dropout") && c.Adapter.DoRA && c.Adapter.Dropout > 0 {
		c.disagree("adapter.dropout", "adapter.dora", "cannot be combined with "+c.say("adapter.dora"), "leave one of them out")
	}
	if c.clean("adapter.targets") && len(c.Adapter.Targets) == 0 {
		c.fail("adapter.targets", "the list is empty", `name modules such as "q_proj", or use ["all-linear"]`)
	}
	if c.clean("adapter.alpha") && rank > 0 && c.Adapter.From == "" && c.Adapter.Alpha == 0 {
		c.fail("adapter.alpha", "0 leaves the adapters without effect", "use a number above 0, such as 2 × rank")
	}
}
