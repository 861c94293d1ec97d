package stages

import (
	"encoding/json"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/tensorops"
)

// RopeScaling stretches rotary positions, so that a model supports more positions than it was first
// trained with. Without a type it has no effect.
type RopeScaling struct {
	Type   string  `json:",omitempty"` // "", "linear" or "llama3"
	Factor float64 `json:",omitempty"` // factor by which all, or long, wavelengths grow
	// For llama3: wavelengths above Original/Low positions grow by Factor, those below
	// Original/High are unchanged, and between them the factor is interpolated.
	Low      float64 `json:",omitempty"`
	High     float64 `json:",omitempty"`
	Original int     `json:",omitempty"`
}

// The types of scaling.
const (
	ropeDefault = "default"
	ropeLinear  = "linear"
	ropeLlama3  = "llama3"
)

// Published factors are far below this limit.
const maxRopeFactor = 1e6

func (s RopeScaling) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: rope scaling: %s", ErrModel, fmt.Sprintf(format, args...))
	}
	switch {
	case s == RopeScaling{}:
		return nil
	case s.Type != ropeLinear && s.Type != ropeLlama3:
		return bad("type %q is neither %q nor %q", s.Type, ropeLinear, ropeLlama3)
	case !(s.Factor >= 1 && s.Factor <= maxRopeFactor):
		return bad("factor is %g: it must be from 1 to %g", s.Factor, float64(maxRopeFactor))
	case s.Type == ropeLinear && s != RopeScaling{Type: s.Type, Factor: s.Factor}:
		return bad("%q takes only a factor", ropeLinear)
	case s.Type == ropeLinear:
		return nil
	case !(s.Low > 0 && s.High > s.Low && s.High <= maxRopeFactor):
		return bad("low_freq_factor is %g and high_freq_factor is %g: the first must be above 0, and the second above the first", s.Low, s.High)
	case s.Original < 1 || s.Original > MaxContext:
		return bad("original_max_position_embeddings is %d: it must be from 1 to %d", s.Original, MaxContext)
	}
	return nil
}

// rotation returns the angles by which the pairs of a head's channels rotate, for a pass whose
// longest sequence has so many positions. Only "dynamic" and "longrope" depend on that number, as
// transformers decides by the largest position of a call. So generation that passes the original
// length with a cache differs from a forward of the whole sequence, in both.
func rotation(s RopeScaling, theta float64, headDim, positions int) *tensorops.Rotation {
	frequencies := make([]float64, (headDim+1)/2)
	for i := range frequencies {
		frequencies[i] = s.frequency(math.Pow(theta, -float64(2*i)/float64(headDim)))
	}
	return tensorops.NewRotation(frequencies, 1)
}

// frequency returns a frequency as the scaling changes it.
func (s RopeScaling) frequency(f float64) float64 {
	switch s.Type {
	case ropeLinear:
		return f / s.Factor
	case ropeLlama3:
		turns := float64(s.Original) * f / (2 * math.Pi) // rotations within Original positions
		keep := min(max((turns-s.Low)/(s.High-s.Low), 0), 1)
		return (1-keep)*f/s.Factor + float64(keep*f) // not fused with the addition, as the compiler would on arm64
	}
	return f
}

// reach returns the number of positions on which the rotation depends: 0, unless it does.
func (s RopeScaling) reach(int) int { return 0 }

// rotations keeps the rotation that a layer used last. The zero value is ready.
type rotations struct{ last atomic.Pointer[keptRotation] }

type keptRotation struct {
	positions int
	rotation  *tensorops.Rotation
}

// of returns rotation(r.scaling, r.theta, headDim, positions). A layer always passes the same
// description and width.
func (kept *rotations) of(r *ropeSpec, headDim, positions int) *tensorops.Rotation {
	positions = r.scaling.reach(positions)
	if last := kept.last.Load(); last != nil && last.positions == positions {
		return last.rotation
	}
	made := &keptRotation{positions, rotation(r.scaling, r.theta, headDim, positions)}
	kept.last.Store(made)
	return made.rotation
}

// hfRope is the scaling in a config.json, under the name that all releases of transformers read;
// rope_theta stands beside it.
type hfRope struct {
	Type     string  `json:"rope_type"`
	Factor   float64 `json:"factor"`
	Low      float64 `json:"low_freq_factor,omitempty"`
	High     float64 `json:"high_freq_factor,omitempty"`
	Original int     `json:"original_max_position_embeddings,omitempty"`
}

func (s RopeScaling) written() *hfRope {
	if s.Type == "" {
		return nil
	}
	return &hfRope{s.Type, s.Factor, s.Low, s.High, s.Original}
}

// ropeKeys holds rope_parameters or rope_scaling while they are turned into a Config.
type ropeKeys struct {
	kind              said[string]
	factor, low, high said[float64]
	original          said[int]
}

// read is the rule for either key.
func (k *ropeKeys) read(r *reading) func(key string, v json.RawMessage) error {
	known := rules{
		"rope_type":                        oneOf(&k.kind, ropeDefault, ropeLinear, ropeLlama3),
		"type":                             oneOf(&k.kind, ropeDefault, ropeLinear, ropeLlama3), // an earlier name
		"rope_theta":                       number(&r.theta, MinRopeTheta, MaxRopeTheta),
		"partial_rotary_factor":            only(`1`, `null`),
		"factor":                           number(&k.factor, 1, maxRopeFactor),
		"low_freq_factor":                  number(&k.low, 0, maxRopeFactor),
		"high_freq_factor":                 number(&k.high, 0, maxRopeFactor),
		"original_max_position_embeddings": whole(&k.original, 1, MaxContext),
	}
	return func(key string, v json.RawMessage) error {
		if string(v) == "null" {
			return nil
		}
		members, err := membersOf(v)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		for _, m := range members {
			name := key + "." + m.key
			rule, ok := known[m.key]
			switch {
			case ok:
				err = rule(name, m.value)
			case string(m.value) != "null":
				err = fmt.Errorf("%s is %s, but this setting of rotary positions is not supported", strictjson.Quote(name), show(m.value))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// scaling combines the settings. It refuses a setting that the type doesn't have.
func (k *ropeKeys) scaling() (RopeScaling, error) {
	s := RopeScaling{Type: k.kind.value}
	llama3 := s.Type == ropeLlama3
	for _, one := range []struct {
		name, key string
		takes     bool
	}{
		{"factor", k.factor.key, llama3 || s.Type == ropeLinear},
		{"low_freq_factor", k.low.key, llama3}, {"high_freq_factor", k.high.key, llama3},
		{"original_max_position_embeddings", k.original.key, llama3},
	} {
		switch {
		case one.takes && one.key == "":
			return s, fmt.Errorf("%s is %q, which also needs %s", k.kind.key, s.Type, one.name)
		case !one.takes && one.key != "":
			return s, fmt.Errorf("%s is set, but rope_type %q has no such setting: remove it", one.key, orDefault(s.Type))
		}
	}
	if s.Type == "" || s.Type == ropeDefault {
		return RopeScaling{}, nil
	}
	s.Factor, s.Low, s.High, s.Original = k.factor.value, k.low.value, k.high.value, k.original.value
	return s, nil
}

func orDefault(kind string) string {
	if kind == "" {
		return ropeDefault
	}
	return kind
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
