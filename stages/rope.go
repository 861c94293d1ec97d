package stages

import (
	"fmt"
	"slices"
	"strings"
)

// RopeScaling changes the angles of rotary positions, mostly so that a model supports more positions
// than it was first trained with. Without a type they are the usual ones. rotation has the formulas.
// In a file of a checkpoint, a setting that is 0 is absent.
type RopeScaling struct {
	// Type is "", "linear", "dynamic", "yarn", "longrope", "llama3" or "proportional".
	Type   string  `json:",omitempty"`
	Factor float64 `json:",omitempty"` // factor by which all, or long, wavelengths grow
	// For llama3: wavelengths above Original/Low positions grow by Factor, those below
	// Original/High are unchanged, and between them the factor is interpolated.
	Low      float64 `json:",omitempty"`
	High     float64 `json:",omitempty"`
	Original int     `json:",omitempty"` // positions before the scaling
	// Partial is the share of a head's channels that rotate, the first ones; 0: all.
	Partial float64 `json:",omitempty"`

	// For yarn and longrope: the factor of cosines and sines; 0: what the type derives from the others.
	AttentionFactor float64 `json:",omitempty"`
	// For yarn: pairs with more than BetaFast rotations within Original positions are unchanged, those
	// with less than BetaSlow grow by Factor. 0: 32 and 1.
	BetaFast float64 `json:",omitempty"`
	BetaSlow float64 `json:",omitempty"`
	// For yarn: together they change the derived AttentionFactor; one alone has no effect on it. MScaleAllDim also multiplies the scores of
	// latent attention.
	MScale       float64 `json:",omitempty"`
	MScaleAllDim float64 `json:",omitempty"`
	Fractional   bool    `json:",omitempty"` // for yarn: the two borders are not rounded to whole pairs
	// For longrope: the factor of each pair's wavelength in sequences of up to Original positions, and
	// in longer ones.
	Short []float64 `json:",omitempty"`
	Long  []float64 `json:",omitempty"`
}

// The types of scaling.
const (
	ropeDefault      = "default" // in files; "" in a RopeScaling
	ropeLinear       = "linear"
	ropeDynamic      = "dynamic"
	ropeYarn         = "yarn"
	ropeLongrope     = "longrope"
	ropeLlama3       = "llama3"
	ropeProportional = "proportional"
)

// The limits of factors of wavelengths, and the least share of channels. Published factors are from 1
// to 64, those of single pairs up to 65; published shares are from 0.25 on.
const (
	maxRopeFactor  = 1e6
	minPairFactor  = 1e-3
	minRotaryShare = 1e-6
)

// ropeSetting is a setting of a scaling, by its key in a config.json, with the types that have it.
type ropeSetting struct {
	key        string
	set        bool
	needs, may []string // types that need it, and that may have it
}

// settings lists the settings that only some types have.
func (s RopeScaling) settings() []ropeSetting {
	types := func(names ...string) []string { return names }
	yarn := types(ropeYarn)
	return []ropeSetting{
		{"factor", s.Factor != 0, types(ropeLinear, ropeDynamic, ropeYarn, ropeLongrope, ropeLlama3), types(ropeProportional)},
		{"low_freq_factor", s.Low != 0, types(ropeLlama3), nil},
		{"high_freq_factor", s.High != 0, types(ropeLlama3), nil},
		{"original_max_position_embeddings", s.Original != 0, types(ropeDynamic, ropeYarn, ropeLongrope, ropeLlama3), nil},
		{"attention_factor", s.AttentionFactor != 0, nil, types(ropeYarn, ropeLongrope)},
		{"beta_fast", s.BetaFast != 0, nil, yarn},
		{"beta_slow", s.BetaSlow != 0, nil, yarn},
		{"mscale", s.MScale != 0, nil, yarn},
		{"mscale_all_dim", s.MScaleAllDim != 0, nil, yarn},
		{"truncate", s.Fractional, nil, yarn},
		{"short_factor", s.Short != nil, types(ropeLongrope), nil},
		{"long_factor", s.Long != nil, types(ropeLongrope), nil},
	}
}

// ropeTypes are the types in files.
var ropeTypes = []string{ropeDefault, ropeLinear, ropeDynamic, ropeYarn, ropeLongrope, ropeLlama3, ropeProportional}

// IsZero reports whether the angles are the usual ones.
func (s RopeScaling) IsZero() bool {
	return s.Type == "" && s.Partial == 0 && !slices.ContainsFunc(s.settings(), func(one ropeSetting) bool { return one.set })
}

// check checks the scaling of heads of so many channels, for wavelengths of a base.
func (s RopeScaling) check(theta float64, headDim int) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: rope scaling: %s", ErrModel, fmt.Sprintf(format, args...))
	}
	if s.Type == ropeDefault || s.Type != "" && !slices.Contains(ropeTypes, s.Type) {
		return bad("type %q is unknown: it must be one of %s", s.Type, strings.Join(ropeTypes[1:], ", "))
	}
	for _, one := range s.settings() {
		switch needs := slices.Contains(one.needs, s.Type); {
		case needs && !one.set:
			return bad("type %q needs %s", s.Type, one.key)
		case !needs && one.set && !slices.Contains(one.may, s.Type):
			return bad("type %q has no %s", orDefault(s.Type), one.key)
		}
	}
	for _, f := range []struct {
		key                string
		value, least, most float64
	}{
		{"factor", s.Factor, 1, maxRopeFactor}, {"partial_rotary_factor", s.Partial, minRotaryShare, 1},
		{"attention_factor", s.AttentionFactor, minFactor, maxRopeFactor},
		{"beta_fast", s.BetaFast, minFactor, maxRopeFactor}, {"beta_slow", s.BetaSlow, minFactor, maxRopeFactor},
		{"mscale", s.MScale, minFactor, maxRopeFactor}, {"mscale_all_dim", s.MScaleAllDim, minFactor, maxRopeFactor},
	} {
		if f.value != 0 && !(f.value >= f.least && f.value <= f.most) {
			return bad("%s is %g: it must be from %g to %g", f.key, f.value, f.least, f.most)
		}
	}
	return s.checkType(theta, headDim, bad)
}

// checkType checks what a type asks of its settings, all of which are there.
func (s RopeScaling) checkType(theta float64, headDim int, bad func(format string, args ...any) error) error {
	rotated, pairs := s.rotated(headDim), s.pairs(headDim)
	switch {
	case pairs < 1 || 2*pairs > headDim || s.Type == ropeProportional && headDim%2 != 0:
		return bad("%d of a head's %d channels rotate: they must be pairs of channels, at least one", rotated, headDim)
	case s.Original != 0 && (s.Original < 1 || s.Original > MaxContext):
		return bad("original_max_position_embeddings is %d: it must be from 1 to %d", s.Original, MaxContext)
	}
	switch s.Type {
	case ropeLlama3:
		if !(s.Low > 0 && s.High > s.Low && s.High <= maxRopeFactor) {
			return bad("low_freq_factor is %g and high_freq_factor is %g: the first must be above 0, and the second above the first", s.Low, s.High)
		}
	case ropeDynamic:
		if rotated < 3 {
			return bad("%d channels of a head rotate: type %q needs at least 3", rotated, s.Type)
		}
	case ropeYarn:
		fast, slow := s.betas()
		switch {
		case rotated%2 != 0:
			return bad("%d channels of a head rotate: type %q needs an even number", rotated, s.Type)
		case fast < slow:
			return bad("beta_fast is %g and beta_slow is %g: the first must not be below the second", fast, slow)
		case theta <= 1: // its logarithm divides
			return bad("rope_theta is %g: type %q needs more than 1", theta, s.Type)
		}
	case ropeLongrope:
		if s.Original < 2 { // its logarithm divides
			return bad("original_max_position_embeddings is %d: it must be from 2 to %d", s.Original, MaxContext)
		}
		for _, list := range []struct {
			key     string
			factors []float64
		}{{"short_factor", s.Short}, {"long_factor", s.Long}} {
			if len(list.factors) != pairs {
				return bad("%s has %d factors, but %d pairs of a head's channels rotate", list.key, len(list.factors), pairs)
			}
			for i, f := range list.factors {
				if !(f >= minPairFactor && f <= maxRopeFactor) {
					return bad("factor %d of %s is %g: it must be from %g to %g", i, list.key, f, minPairFactor, float64(maxRopeFactor))
				}
			}
		}
	}
	return nil
}

func orDefault(kind string) string {
	if kind == "" {
		return ropeDefault
	}
	return kind
}
