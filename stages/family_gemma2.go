package stages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/troupe-ml/troupe/tensorops"
)

// Gemma2 and Gemma3 are the families of Gemma 2 and of Gemma 3's text models: norms before and after
// each branch whose weights are 1+w, embeddings multiplied by the root of their width, a gate of
// GELU, and a scale of the scores that does not follow from the heads' width. Some layers have a
// window. Gemma 2 has soft caps; Gemma 3 has norms on the heads of q and k, and the layers with a
// window have their own rotary base.
const (
	Gemma2 = "gemma2"
	Gemma3 = "gemma3_text"
)

var gemma2Family = &decoder{
	model: Gemma2, hf: "Gemma2ForCausalLM", names: gemmaNames, spec: gemmaLayer, finish: gemmaEnds,
	sizes: sizes{vocab: 256000, positions: 8192, hidden: 2304, layers: 26, heads: 8, ffn: 9216, kvHeads: 4, headDim: 256, eps: 1e-6,
		theta: 10000, tie: true},
	own: append(gemmaKeys(gemma2Every),
		softCap("attn_logit_softcapping", 50, func(c *Config) *float64 { return &c.AttentionSoftCap }),
		softCap("final_logit_softcapping", 30, func(c *Config) *float64 { return &c.LogitSoftCap })),
	limits: gemmaLimits,
	scratch: func(c *Config) {
		gemmaWindows(c, gemma2Every)
		c.AttentionSoftCap, c.LogitSoftCap = 50, 30
	},
}

var gemma3Family = &decoder{
	model: Gemma3, hf: "Gemma3ForCausalLM", names: gemmaNames, finish: gemmaEnds,
	outer: outerModel{model: "gemma3", class: "Gemma3ForConditionalGeneration",
		keys:  []string{"vision_config", "mm_tokens_per_image", "boi_token_index", "eoi_token_index", "image_token_index"},
		parts: []string{"vision_tower.", "multi_modal_projector."}},
	sizes: sizes{vocab: 262208, positions: 131072, hidden: 2304, layers: 26, heads: 8, ffn: 9216, kvHeads: 4, headDim: 256, eps: 1e-6,
		theta: gemma3Theta, tie: true},
	own: append(gemmaKeys(gemma3Every), ropeByType(gemma3Theta, gemma3WindowTheta, "rope_local_base_freq"),
		ignored("_sliding_window_pattern"), // what transformers keeps of sliding_window_pattern beside layer_types
		// transformers' attention of Gemma 3 does not read it.
		fixed("attn_logit_softcapping", `null`),
		softCap("final_logit_softcapping", 0, func(c *Config) *float64 { return &c.LogitSoftCap })),
	spec: func(c Config, i int, l *layerSpec) {
		gemmaLayer(c, i, l)
		l.qkNorm = qkNormHeads
		if l.window > 0 {
			l.rope = &ropeSpec{theta: c.windowTheta()}
		}
	},
	limits: gemmaLimits,
	scratch: func(c *Config) {
		gemmaWindows(c, gemma3Every)
		if c.Window > 0 && c.RopeTheta != gemma3WindowTheta {
			c.WindowTheta = gemma3WindowTheta
		}
	},
}

// Every so many layers attend to all positions; Gemma 3's bases of the wavelengths in these layers
// and in those with a window. They are the defaults of transformers' configuration classes.
const (
	gemma2Every       = 2
	gemma3Every       = 6
	gemma3Theta       = 1e6
	gemma3WindowTheta = 1e4
)

var gemmaNames = func() tensorNames {
	n := llamaNames
	n.after1, n.norm2, n.after2 = "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
	return n
}()

func gemmaLayer(_ Config, _ int, l *layerSpec) {
	l.norms, l.normOffset, l.act.Act = normsBoth, 1, tensorops.TanhGELU
}

func gemmaEnds(c Config, e *endsSpec) { e.embedding, e.normOffset = math.Sqrt(float64(c.Hidden)), 1 }

func gemmaLimits(c Config) error {
	if c.Hidden%c.Heads != 0 { // transformers' configuration classes refuse it
		return fmt.Errorf("%w: hidden %d is not a multiple of heads %d", ErrModel, c.Hidden, c.Heads)
	}
	return c.noMLPBias()
}

// gemmaWindows sets the layers without the window of a model that is trained from scratch.
func gemmaWindows(c *Config, every int) {
	if c.Window > 0 && len(everyNth(every, c.Layers)) < c.Layers {
		c.Full = everyNth(every, c.Layers)
	}
}

// gemmaKeys are the keys that both families have.
func gemmaKeys(every int) []keySet {
	return []keySet{
		noPadding, attentionBias(false), patternWindows(4096, every, "sliding_window_pattern"), queryScalar(256),
		fixed("use_bidirectional_attention", `false`, `null`), ignored("cache_implementation"),
		gelu,
		{rules: func(r *reading) rules {
			return rules{"head_dim": whole(&r.headDim, 1, MaxHidden), "num_key_value_heads": whole(&r.kvHeads, 1, MaxHeads)}
		}},
	}
}

// gelu is the key of the gate's activation.
var gelu = keySet{
	rules: func(*reading) rules {
		return rules{"hidden_activation": only(`"gelu_pytorch_tanh"`), "hidden_act": neutral} // which transformers does not read
	},
	write: func(_ Config, h *hfWritten) {
		h.HiddenAct = ""
		h.add("hidden_activation", "gelu_pytorch_tanh")
	},
}

// queryScalar is the key of a number one over whose root is the factor of the scores.
func queryScalar(missing int) keySet {
	const key = "query_pre_attn_scalar"
	scale := func(n int) float64 { return 1 / math.Sqrt(float64(n)) }
	return keySet{
		switches: (Config{AttentionScale: 1}).switches(),
		rules: func(r *reading) rules {
			r.queryScalar.value = missing
			return rules{key: whole(&r.queryScalar, 1, MaxHidden)}
		},
		read: func(r *reading, c *Config) error {
			if n := r.queryScalar.value; n != c.headDim() {
				c.AttentionScale = scale(n)
			}
			return nil
		},
		write: func(c Config, h *hfWritten) {
			n := c.headDim()
			if c.AttentionScale != 0 {
				n = int(math.Round(1 / (c.AttentionScale * c.AttentionScale)))
			}
			h.add(key, n)
		},
	}
}

// softCap is a key of a limit; null: none. missing is the value of a missing key; 0: null.
func softCap(key string, missing float64, field func(c *Config) *float64) keySet {
	var set Config
	*field(&set) = 1
	return keySet{
		switches: set.switches(),
		rules: func(r *reading) rules {
			v := r.number(key, missing)
			return rules{key: func(key string, text json.RawMessage) error {
				if string(text) == "null" {
					return v.set(key, 0)
				}
				return number(v, minFactor, maxFactor)(key, text)
			}}
		},
		read: func(r *reading, c *Config) error { *field(c) = r.number(key, missing).value; return nil },
		write: func(c Config, h *hfWritten) {
			if v := *field(&c); v != 0 {
				h.add(key, fractional(v))
			} else {
				h.add(key, nil)
			}
		},
	}
}

// fractional writes 30 as 30.0: transformers takes no integer for these keys.
func fractional(v float64) json.RawMessage {
	text := strconv.AppendFloat(nil, v, 'g', -1, 64)
	if !bytes.ContainsAny(text, ".e") {
		text = append(text, ".0"...)
	}
	return text
}
