package stages

import (
	"encoding/json"
	"math"
)

// keySet is some keys of a config.json that belong together: their rules, what they mean for a
// Config, and how a Config writes them.
type keySet struct {
	rules func(r *reading) rules
	read  func(r *reading, c *Config) error // after all keys were read; nil: nothing is left to do
	write func(c Config, h *hfWritten)      // nil: the keys need not be written
	// switches are the names that Config.switches has for what they set.
	switches []string
}

// llamaKeys are the keys that Llama and the families derived from it share.
var llamaKeys = keySet{
	rules: func(r *reading) rules {
		return rules{
			"max_position_embeddings": whole(&r.positions, 1, MaxContext),
			"hidden_size":             whole(&r.hidden, 1, MaxHidden),
			"intermediate_size":       whole(&r.ffn, 1, MaxFFN),
			"num_hidden_layers":       whole(&r.layers, 0, MaxLayers),
			"num_attention_heads":     whole(&r.heads, 1, MaxHeads),
			"num_key_value_heads":     r.groups,
			"head_dim":                orNull(whole(&r.headDim, 1, MaxHidden)),
			"rms_norm_eps":            number(&r.eps, MinNormEps, maxNormEps),
			"rope_theta":              number(&r.theta, MinRopeTheta, MaxRopeTheta),
			"rope_parameters":         r.rope.read(r), // transformers 5 and later
			"rope_scaling":            r.rope.read(r), // earlier versions
			"attention_dropout":       orNull(number(&r.dropout, 0, 1)),
			"embd_pdrop":              number(new(said[float64]), 0, 1), // Troupe's
			"resid_pdrop":             number(new(said[float64]), 0, 1), // Troupe's
			"attn_pdrop":              number(new(said[float64]), 0, 1), // Troupe's

			"hidden_act":            only(`"silu"`, `"swish"`), // two names for one function
			"attention_bias":        only(`false`, `null`),
			"mlp_bias":              only(`false`, `null`),
			"partial_rotary_factor": r.rope.readPartial,
			"rope_interleaved":      only(`false`, `null`),
			"sliding_window":        only(`null`),
			"use_sliding_window":    only(`false`, `null`),
		}
	},
	read: func(r *reading, c *Config) (err error) {
		c.RopeTheta = r.theta.value
		c.RopeScaling, err = r.rope.scaling(r.positions.value)
		return err
	},
	write: func(c Config, h *hfWritten) {
		h.Hidden, h.Intermediate, h.Layers, h.Heads, h.KVHeads = c.Hidden, c.FFN, &c.Layers, c.Heads, c.KVHeads
		h.HeadDim, h.MaxPositions, h.RMSEps, h.RopeTheta, h.HiddenAct = c.headDim(), c.RopeScaling.hfPositions(c.Positions()), c.eps(),
			c.RopeTheta, "silu"
		h.LlamaDrop, h.RopeScaling = c.Dropout, c.RopeScaling.written()
	},
}

// noPadding writes that the vocabulary has no token for padding. Some configuration classes have one
// by default, which a small vocabulary lacks.
var noPadding = keySet{
	rules: func(*reading) rules { return nil },
	write: func(_ Config, h *hfWritten) { h.add("pad_token_id", nil) },
}

// fixed is a key that may only have the given values.
func fixed(key string, values ...string) keySet {
	return keySet{rules: func(*reading) rules { return rules{key: only(values...)} }}
}

// ignored are keys that do not change what the model computes.
func ignored(keys ...string) keySet {
	return keySet{rules: func(*reading) rules {
		own := make(rules)
		for _, key := range keys {
			own[key] = neutral
		}
		return own
	}}
}

// attentionBias is the key of the biases of q, k, v and attention's output.
func attentionBias(null bool) keySet {
	return keySet{
		rules: func(r *reading) rules { return rules{"attention_bias": nullIf(null, truth(&r.attentionBias))} },
		read:  func(r *reading, c *Config) error { c.AttentionBias = r.attentionBias.value; return nil },
		write: func(c Config, h *hfWritten) { h.AttentionBias = c.AttentionBias },
	}
}

// mlpBias is the key of the biases of the feed-forward part.
func mlpBias(null bool) keySet {
	return keySet{
		rules: func(r *reading) rules { return rules{"mlp_bias": nullIf(null, truth(&r.mlpBias))} },
		read:  func(r *reading, c *Config) error { c.MLPBias = r.mlpBias.value; return nil },
		write: func(c Config, h *hfWritten) { h.MLPBias = c.MLPBias },
	}
}

// nullIf makes a rule accept null.
func nullIf(null bool, rule func(string, json.RawMessage) error) func(string, json.RawMessage) error {
	if null {
		return orNull(rule)
	}
	return rule
}

// oneWindow is the key of a window that all layers have. missing is the value of a missing key; 0:
// none.
func oneWindow(missing int) keySet {
	return keySet{
		rules: func(r *reading) rules {
			r.windows.size.value = missing
			return rules{"sliding_window": r.windows.sliding}
		},
		read:  func(r *reading, c *Config) error { c.setWindow(r.windows.size.value, nil); return nil },
		write: func(c Config, h *hfWritten) { h.writeWindow(c) },
	}
}

// qwenWindows are Qwen's keys of the layers that have a window.
var qwenWindows = keySet{
	rules: func(r *reading) rules { return r.windows.layerKeys() },
	read:  func(r *reading, c *Config) error { return r.windows.read(c) },
	write: func(c Config, h *hfWritten) { h.writeLayerWindows(c) },
}

// factor is a key whose number multiplies or divides something. none is the value without effect,
// for which the field is 0. missing is the value of a missing key.
func factor(key string, missing float64, none func(c Config) float64, field func(c *Config) *float64) keySet {
	var set Config
	*field(&set) = 1
	return keySet{
		switches: set.switches(),
		rules: func(r *reading) rules {
			v := r.number(key, missing)
			return rules{key: number(v, minFactor, maxFactor)}
		},
		read: func(r *reading, c *Config) error {
			if v := r.number(key, missing).value; v != none(*c) {
				*field(c) = v
			}
			return nil
		},
		write: func(c Config, h *hfWritten) {
			v := *field(&c)
			if v == 0 {
				v = none(c)
			}
			h.add(key, v)
		},
	}
}

// The limits of multipliers and of limits of scores and logits. Published ones are from 0.004 to 100.
const (
	minFactor = 1e-6
	maxFactor = 1e6
)

// isFactor reports whether a multiplier is not set or within the limits.
func isFactor(v float64) bool { return v == 0 || v >= minFactor && v <= maxFactor && !math.IsInf(v, 0) }
