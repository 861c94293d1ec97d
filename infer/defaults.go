package infer

import (
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/trained"
)

// Defaults are how a model's generation_config.json says to generate texts. nil: it does not say.
type Defaults struct {
	Tokens            *int // most tokens to generate
	Temperature       *float64
	TopK              *int
	TopP              *float64
	MinP              *float64
	RepetitionPenalty *float64
	Stop              []string
	// Warning names the keys that have no effect in Troupe; "": there are none.
	Warning string
}

// Defaults reads the model's generation_config.json. TextOptions do not use it by themselves: see Apply.
func (g *Generator) Defaults() (Defaults, error) { return defaultsOf(g.model) }

// Defaults reads the model's generation_config.json, as Generator.Defaults does.
func (b *Batch) Defaults() (Defaults, error) { return defaultsOf(b.model()) }

func defaultsOf(m *trained.Model) (d Defaults, err error) {
	if m.Checkpoint == nil {
		return d, nil
	}
	g, err := rundir.ReadGeneration(m.Checkpoint)
	if err != nil {
		return d, &SetupError{Err: fmt.Errorf("%s: %w", m.From(), err)}
	}
	d = Defaults{Tokens: g.NewTokens, Temperature: g.Temperature, TopK: g.TopK, TopP: g.TopP, MinP: g.MinP,
		RepetitionPenalty: g.RepetitionPenalty, Stop: g.Stop}
	switch {
	case g.Sample == nil:
	case !*g.Sample: // the other keys say how to sample, which it does not do
		greedy := 0.0
		d.Temperature, d.TopK, d.TopP, d.MinP = &greedy, nil, nil, nil
	case d.Temperature == nil:
		usual := 1.0 // of transformers
		d.Temperature = &usual
	}
	if len(g.Unsupported) > 0 {
		d.Warning = fmt.Sprintf("%s has keys without effect here: %s", rundir.GenerationFile, strings.Join(g.Unsupported, ", "))
	}
	return d, nil
}

// Options of TextOptions that Defaults may set, for Apply.
const (
	OptionTokens            = "tokens"
	OptionTemperature       = "temperature"
	OptionTopK              = "top-k"
	OptionTopP              = "top-p"
	OptionMinP              = "min-p"
	OptionRepetitionPenalty = "repetition-penalty"
	OptionStop              = "stop"
)

// Apply sets the options that the model has a default of and that are not given. A model that always takes the most likely
// token samples if given says how.
func (d Defaults) Apply(o *TextOptions, given func(option string) bool) {
	setUnless(&o.Tokens, d.Tokens, given(OptionTokens))
	sampled := given(OptionTopK) || given(OptionTopP) || given(OptionMinP)
	setUnless(&o.Temperature, d.Temperature, given(OptionTemperature) || sampled && d.Temperature != nil && *d.Temperature == 0)
	setUnless(&o.TopK, d.TopK, given(OptionTopK))
	setUnless(&o.TopP, d.TopP, given(OptionTopP))
	setUnless(&o.MinP, d.MinP, given(OptionMinP))
	setUnless(&o.RepetitionPenalty, d.RepetitionPenalty, given(OptionRepetitionPenalty))
	if len(d.Stop) > 0 && !given(OptionStop) {
		o.Stop = d.Stop
	}
}

func setUnless[T any](to, value *T, given bool) {
	if value != nil && !given {
		*to = *value
	}
}
