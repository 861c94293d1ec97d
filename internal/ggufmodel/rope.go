package ggufmodel

import (
	"cmp"
	"math"
	"slices"
)

// rope is what a config.json says about rotary positions.
type rope struct {
	kind              string // "": default
	theta, local      float64
	factor, low, high float64
	original          int
	attention         float64 // attention_factor; 0: not given
	fast, slow        float64 // of yarn
	long, short       []float64
	partial           float64 // share of the channels that rotate
	sections          []int32 // of these channels, for the axes of an image
}

// rope reads the keys for rotary positions, in the forms of all releases of transformers.
func (w *writer) rope() rope {
	s := w.settings
	r := rope{theta: get(s, "rope_theta", w.arch.theta), local: get(s, "rope_local_base_freq", 0.0),
		partial: get(s, "partial_rotary_factor", cmp.Or(w.arch.partial, 1))}
	r.original = get(s, "original_max_position_embeddings", 0)
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		o := s.object(key)
		if o == nil {
			continue
		}
		if local := o.object("sliding_attention"); local != nil {
			r.local = get(local, "rope_theta", r.local)
			local.ignore("partial_rotary_factor")
			if kind := get(local, "rope_type", "default"); kind != "default" {
				local.refuse("rope_type %q of layers with a window", kind)
			}
			w.merge(local)
		}
		if full := o.object("full_attention"); full != nil {
			r.settings(full)
			w.merge(full)
		}
		if w.arch.name == "qwen35" {
			r.sections = get(o, "mrope_section", r.sections)
			o.ignore("mrope_interleaved")
		}
		r.settings(o)
		w.merge(o)
	}
	return r
}

// merge takes the error of settings inside others.
func (w *writer) merge(s *settings) {
	s.rest(w.arch.name)
	if w.settings.err == nil {
		w.settings.err = s.err
	}
}

// settings reads rope_parameters or rope_scaling.
func (r *rope) settings(s *settings) {
	r.kind = get(s, "type", r.kind) // an earlier name
	r.kind = get(s, "rope_type", r.kind)
	if r.kind == "default" {
		r.kind = ""
	}
	r.theta = get(s, "rope_theta", r.theta)
	r.partial = get(s, "partial_rotary_factor", r.partial)
	r.factor = get(s, "factor", r.factor)
	r.low, r.high = get(s, "low_freq_factor", r.low), get(s, "high_freq_factor", r.high)
	if n := get(s, "original_max_position_embeddings", 0); n != 0 && r.original == 0 {
		r.original = n
	}
	r.attention = get(s, "attention_factor", r.attention)
	r.fast, r.slow = get(s, "beta_fast", r.fast), get(s, "beta_slow", r.slow)
	r.long, r.short = get(s, "long_factor", r.long), get(s, "short_factor", r.short)
	if !get(s, "truncate", true) {
		s.refuse("truncate is false, but llama.cpp rounds yarn's range to whole channels")
	}
}

// scaling writes the keys of a scaling.
func (w *writer) scaling(r rope, headDim int) {
	switch r.kind {
	case "":
	case "linear":
		w.own("rope.scaling.type", "linear")
		w.own("rope.scaling.factor", float32(r.factor))
	case "llama3":
		w.extra("rope_freqs.weight", llama3Factors(r, headDim))
	case "yarn":
		own := 1.0
		if r.factor > 1 {
			own = 0.1*math.Log(r.factor) + 1
		}
		if r.attention != 0 && math.Abs(r.attention-own) > 1e-6 {
			w.settings.refuse("attention_factor is %g, but llama.cpp computes yarn with %g", r.attention, own)
		}
		original := r.original
		if original == 0 {
			original = w.context
		}
		w.own("rope.scaling.type", "yarn")
		w.own("rope.scaling.factor", float32(r.factor))
		w.own("rope.scaling.original_context_length", uint32(original))
		if r.fast != 0 {
			w.own("rope.scaling.yarn_beta_fast", float32(r.fast))
		}
		if r.slow != 0 {
			w.own("rope.scaling.yarn_beta_slow", float32(r.slow))
		}
	default:
		w.settings.refuse("rope_type %q, which llama.cpp's %s does not have", r.kind, w.arch.name)
	}
}

// llama3Factors returns the number by which each frequency is divided (Llama 3.1; transformers'
// _compute_llama3_parameters).
func llama3Factors(r rope, headDim int) []float32 {
	longest, shortest := float64(r.original)/r.low, float64(r.original)/r.high
	var out []float32
	for i := 0; i < headDim; i += 2 {
		wave := 2 * math.Pi * math.Pow(r.theta, float64(i)/float64(headDim))
		switch {
		case wave < shortest:
			out = append(out, 1)
		case wave > longest:
			out = append(out, float32(r.factor))
		default:
			smooth := (float64(r.original)/wave - r.low) / (r.high - r.low)
			out = append(out, float32(1/((1-smooth)/r.factor+smooth)))
		}
	}
	return out
}

// llama3Of finds the settings that lead to factors, among those of published models: low 1, high 4, and a
// power of two as the original number of positions.
func llama3Of(factors []float32, theta float64, headDim int) (r rope, ok bool) {
	if len(factors) == 0 || len(factors) != (headDim+1)/2 {
		return r, false
	}
	r = rope{kind: "llama3", theta: theta, low: 1, high: 4, factor: float64(slices.Max(factors))}
	for r.original = 1; r.factor >= 1 && r.original <= 1<<24; r.original *= 2 {
		want := llama3Factors(r, headDim)
		if slices.EqualFunc(want, factors, func(a, b float32) bool {
			return math.Abs(float64(a-b)) <= 1e-5*float64(a)
		}) {
			return r, true
		}
	}
	return r, false
}

// longFactor returns the factor by which longrope multiplies cosines and sines (transformers'
// _compute_longrope_parameters).
func longFactor(r rope, context int) float64 {
	if r.attention != 0 {
		return r.attention
	}
	factor := r.factor
	if factor == 0 {
		factor = float64(context) / float64(r.original)
	}
	if factor <= 1 {
		return 1
	}
	return math.Sqrt(1 + math.Log(factor)/math.Log(float64(r.original)))
}

func float32s(all []float64) []float32 {
	out := make([]float32, len(all))
	for i, v := range all {
		out[i] = float32(v)
	}
	return out
}
