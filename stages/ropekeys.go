package stages

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// hfRope is the scaling in a config.json, under the name that all releases of transformers read;
// rope_theta stands beside it.
type hfRope struct {
	Type     string  `json:"rope_type"`
	Factor   float64 `json:"factor,omitempty"`
	Low      float64 `json:"low_freq_factor,omitempty"`
	High     float64 `json:"high_freq_factor,omitempty"`
	Original int     `json:"original_max_position_embeddings,omitempty"`

	Partial         float64   `json:"partial_rotary_factor,omitempty"`
	AttentionFactor float64   `json:"attention_factor,omitempty"`
	BetaFast        float64   `json:"beta_fast,omitempty"`
	BetaSlow        float64   `json:"beta_slow,omitempty"`
	MScale          float64   `json:"mscale,omitempty"`
	MScaleAllDim    float64   `json:"mscale_all_dim,omitempty"`
	Truncate        *bool     `json:"truncate,omitempty"`
	Short           []float64 `json:"short_factor,omitempty"`
	Long            []float64 `json:"long_factor,omitempty"`
}

func (s RopeScaling) written() *hfRope {
	if s.IsZero() {
		return nil
	}
	h := &hfRope{orDefault(s.Type), s.Factor, s.Low, s.High, s.Original, s.Partial, s.AttentionFactor, s.BetaFast, s.BetaSlow,
		s.MScale, s.MScaleAllDim, nil, s.Short, s.Long}
	if s.Fractional {
		h.Truncate = new(bool)
	}
	if s.Type == ropeDynamic { // it is max_position_embeddings there
		h.Original = 0
	}
	return h
}

// hfPositions is the value of max_position_embeddings for a model of so many positions.
func (s RopeScaling) hfPositions(positions int) int {
	if s.Type == ropeDynamic {
		return s.Original
	}
	return positions
}

// ropeKeys holds rope_parameters or rope_scaling while they are turned into a Config.
type ropeKeys struct {
	kind                       said[string]
	factor, low, high          said[float64]
	original                   said[int]
	attention, fast, slow      said[float64]
	mscale, mscaleAll, partial said[float64]
	truncate                   said[bool]
	short, long                saidList
	// hasPartial: the family has partial_rotary_factor. byType: the keys are those of one kind of layers. given: there are any. null:
	// rope_scaling is null.
	hasPartial, byType, given, null bool
}

// saidList is a list of numbers and the key that set it.
type saidList struct {
	value []float64
	key   string
}

// read is the rule for either key.
func (k *ropeKeys) read(r *reading) func(key string, v json.RawMessage) error {
	above := func(into *said[float64]) func(string, json.RawMessage) error {
		return orNull(number(into, minFactor, maxRopeFactor))
	}
	known := rules{
		"rope_type":                        k.readType,
		"type":                             k.readType, // an earlier name
		"rope_theta":                       number(&r.theta, MinRopeTheta, MaxRopeTheta),
		"partial_rotary_factor":            k.readPartial,
		"factor":                           orNull(number(&k.factor, 1, maxRopeFactor)),
		"low_freq_factor":                  number(&k.low, 0, maxRopeFactor),
		"high_freq_factor":                 number(&k.high, 0, maxRopeFactor),
		"original_max_position_embeddings": whole(&k.original, 1, MaxContext),
		"attention_factor":                 above(&k.attention),
		"beta_fast":                        above(&k.fast),
		"beta_slow":                        above(&k.slow),
		"mscale":                           above(&k.mscale),
		"mscale_all_dim":                   above(&k.mscaleAll),
		"truncate":                         k.readTruncate,
		"short_factor":                     k.short.read,
		"long_factor":                      k.long.read,
		// The axes of multimodal positions: those of text are the same along all of them.
		"mrope_section":     neutral,
		"mrope_interleaved": neutral,
	}
	return func(key string, v json.RawMessage) error {
		k.given = k.given || key == "rope_parameters" && string(v) != "null"
		return eachMember(key, v, func(name string, m member) error {
			k.given = true
			rule, ok := known[m.key]
			switch {
			case ok:
				return rule(name, m.value)
			case string(m.value) != "null":
				return fmt.Errorf("%s is %s, but this setting of rotary positions is not supported", strictjson.Quote(name), show(m.value))
			}
			return nil
		})
	}
}

// suRope is the first name of longrope, of Phi-3.
const suRope = "su"

func (k *ropeKeys) readType(key string, v json.RawMessage) error {
	return oneOf(&k.kind, append(slices.Clone(ropeTypes), suRope)...)(key, v)
}

// readPartial is the rule of partial_rotary_factor, which has an effect in some families of
// transformers and not in others.
func (k *ropeKeys) readPartial(key string, v json.RawMessage) error {
	if !k.hasPartial {
		return only(`1`, `null`)(key, v)
	}
	return orNull(number(&k.partial, minRotaryShare, 1))(key, v)
}

// readTruncate is the rule of truncate, which transformers does not find beside the settings of one
// kind of layers.
func (k *ropeKeys) readTruncate(key string, v json.RawMessage) error {
	if k.byType {
		return only(`true`, `null`)(key, v)
	}
	return orNull(truth(&k.truncate))(key, v)
}

// read is the rule of a list of factors.
func (l *saidList) read(key string, v json.RawMessage) error {
	if string(v) == "null" {
		return nil
	}
	var factors []float64
	if err := json.Unmarshal(v, &factors); err != nil || len(factors) == 0 || len(factors) > MaxHidden/2 {
		return fmt.Errorf("%s is %s: it must be a list of 1 to %d numbers", key, show(v), MaxHidden/2)
	}
	for i, f := range factors {
		if !(f >= minPairFactor && f <= maxRopeFactor) {
			return fmt.Errorf("%s[%d] is %g: it must be a number from %g to %g", key, i, f, minPairFactor, float64(maxRopeFactor))
		}
	}
	if l.key != "" && !slices.Equal(l.value, factors) {
		return fmt.Errorf("%s and %s differ. The two keys mean the same: remove one", key, l.key)
	}
	l.value, l.key = factors, key
	return nil
}

// scaling combines the settings, for a model of so many positions. It refuses a setting that the type
// doesn't have.
func (k *ropeKeys) scaling(positions int) (RopeScaling, error) {
	s := RopeScaling{Type: k.kind.value, Factor: k.factor.value, Low: k.low.value, High: k.high.value, Original: k.original.value,
		AttentionFactor: k.attention.value, BetaFast: k.fast.value, BetaSlow: k.slow.value, MScale: k.mscale.value,
		MScaleAllDim: k.mscaleAll.value, Fractional: k.truncate.key != "" && !k.truncate.value, Short: k.short.value, Long: k.long.value}
	if s.Type == suRope || s.Type == ropeYarn && s.Long != nil { // the names of Phi-3's first files
		s.Type = ropeLongrope
	}
	if s.Type == ropeDefault {
		s.Type = ""
	}
	if p := k.partial.value; p != 1 {
		s.Partial = p
	}
	keys := map[string]string{"factor": k.factor.key, "low_freq_factor": k.low.key, "high_freq_factor": k.high.key,
		"original_max_position_embeddings": k.original.key, "attention_factor": k.attention.key, "beta_fast": k.fast.key,
		"beta_slow": k.slow.key, "mscale": k.mscale.key, "mscale_all_dim": k.mscaleAll.key, "truncate": k.truncate.key,
		"short_factor": k.short.key, "long_factor": k.long.key}
	for _, one := range s.settings() {
		key := keys[one.key]
		if key != "" && (!slices.Contains(one.needs, s.Type) && !slices.Contains(one.may, s.Type) || k.derived(one.key, s.Type)) {
			return s, fmt.Errorf("%s is set, but rope_type %q has no such setting: remove it", key, orDefault(s.Type))
		}
	}
	s.derive(positions)
	for _, one := range s.settings() {
		if slices.Contains(one.needs, s.Type) && keys[one.key] == "" && !one.set {
			return s, fmt.Errorf("%s is %q, which also needs %s", k.kind.key, s.Type, one.key)
		}
	}
	return s, nil
}

// derived reports whether a type takes a setting from max_position_embeddings in any case.
func (*ropeKeys) derived(key, kind string) bool {
	return kind == ropeDynamic && key == "original_max_position_embeddings"
}

// derive sets what transformers derives from the model's positions if a file leaves it out.
func (s *RopeScaling) derive(positions int) {
	switch s.Type {
	case ropeDynamic:
		s.Original = positions
	case ropeYarn, ropeLongrope:
		if s.Original == 0 {
			s.Original = positions
		}
		if s.Factor == 0 {
			s.Factor = max(1, float64(positions)/float64(max(s.Original, 1)))
		}
	}
}

// partialRotary is the key of families of which a part of a head's channels may rotate. It may stand
// in rope_parameters, too.
var partialRotary = keySet{
	switches: []string{partialSwitch},
	rules: func(r *reading) rules {
		r.rope.hasPartial = true
		return rules{"partial_rotary_factor": r.rope.readPartial}
	},
	write: func(c Config, h *hfWritten) {
		if p := c.RopeScaling.Partial; p != 0 {
			h.add("partial_rotary_factor", p)
		}
	},
}

// originalPositions is the key of families that have the positions before the scaling beside
// rope_parameters, where it has precedence. missing is the value of a missing key.
func originalPositions(missing int) keySet {
	const key = "original_max_position_embeddings"
	return keySet{
		rules: func(r *reading) rules {
			r.originalPositions.value = missing
			return rules{key: whole(&r.originalPositions, 1, MaxContext)}
		},
		read: func(r *reading, c *Config) (err error) {
			if !slices.Contains([]string{ropeLlama3, ropeYarn, ropeLongrope}, c.RopeScaling.Type) {
				return nil
			}
			r.rope.original = said[int]{r.originalPositions.value, key}
			c.RopeScaling, err = r.rope.scaling(r.positions.value)
			return err
		},
		write: func(c Config, h *hfWritten) {
			if o := c.RopeScaling.Original; o != 0 && c.RopeScaling.Type != ropeDynamic {
				h.add(key, o)
			}
		},
	}
}

// oneOf accepts one of the given words.
func oneOf(into *said[string], words ...string) func(string, json.RawMessage) error {
	allowed := make([]string, len(words))
	for i, w := range words {
		allowed[i] = fmt.Sprintf("%q", w)
	}
	return func(key string, v json.RawMessage) error {
		if err := only(allowed...)(key, v); err != nil {
			return err
		}
		var word string
		if err := json.Unmarshal(v, &word); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return into.set(key, word)
	}
}
