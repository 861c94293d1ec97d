package stages

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/tensorops"
)

// Qwen35 is the family of the dense text models of Qwen 3.5. Most layers have the gated delta rule;
// every fourth has attention with an output gate, of which a part of each head rotates. The norms'
// weights are 1+w, except for the one within the gated delta rule.
const Qwen35 = "qwen3_5_text"

var qwen35Family = &decoder{
	model: Qwen35, hf: "Qwen3_5ForCausalLM", names: qwen35Names,
	outer: outerModel{model: "qwen3_5", class: "Qwen3_5ForConditionalGeneration", untied: true,
		keys:  []string{"vision_config", "image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"},
		parts: []string{"visual.", "mtp."}},
	sizes: sizes{vocab: 248320, positions: 32768, hidden: 4096, layers: 32, heads: 16, ffn: 12288, kvHeads: 4, headDim: 256,
		eps: 1e-6, theta: 10000},
	own: []keySet{attentionBias(false), partialRotary, qwen35Layers,
		{
			rules: func(r *reading) rules {
				r.rope.partial.value = qwen35Share
				return rules{"head_dim": whole(&r.headDim, 1, MaxHidden)}
			},
			write: func(c Config, h *hfWritten) {
				if c.RopeScaling.Partial == 0 { // a missing key is not the whole head
					h.add("partial_rotary_factor", 1)
				}
			},
		},
		fixed("attn_output_gate", `true`, `null`), fixed("mlp_only_layers", `[]`, `null`),
		// The type of the state, which is always float32; the layers that predict further tokens, which
		// transformers' class does not have either.
		ignored("mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"),
	},
	spec: func(_ Config, _ int, l *layerSpec) {
		l.qkNorm, l.normOffset, l.outputGate = qkNormHeads, 1, true
	},
	finish: func(_ Config, e *endsSpec) { e.normOffset = 1 },
	limits: func(c Config) error {
		switch {
		case c.Window != 0:
			return c.noWindow()
		case c.MLPBias:
			return c.noMLPBias()
		}
		return nil
	},
	scratch: func(c *Config) {
		c.RopeScaling.Partial = qwen35Share
		c.Delta = DeltaConfig{Layers: allBut(everyNth(qwen35Every, c.Layers), c.Layers), KeyHeads: c.Heads, ValueHeads: c.Heads,
			KeyWidth: min(c.headDim(), tensorops.MaxDeltaWidth), ValueWidth: min(c.headDim(), tensorops.MaxDeltaWidth), Taps: 4}
	},
}

// Every so many layers have attention, and the share of a head's channels that rotate.
const (
	qwen35Every = 4
	qwen35Share = 0.25
)

var qwen35Names = func() tensorNames {
	n := llamaNames
	const at = "linear_attn."
	n.delta = deltaNames{qkv: at + "in_proj_qkv", q: at + "q_proj", k: at + "k_proj", v: at + "v_proj", z: at + "in_proj_z",
		b: at + "in_proj_b", a: at + "in_proj_a", taps: at + "conv1d", norm: at + "norm", o: at + "out_proj",
		aLog: at + "A_log", dtBias: at + "dt_bias"}
	return n
}()

// allBut returns the layers that are not in a list.
func allBut(list []int, layers int) (others []int) {
	for i := range layers {
		if !slices.Contains(list, i) {
			others = append(others, i)
		}
	}
	return others
}

const linearAttention = "linear_attention"

// deltaKeys are the keys of the gated delta rule until all are read.
type deltaKeys struct {
	taps, keyWidth, valueWidth, keyHeads, valueHeads, every said[int]
	types                                                   []string
}

// qwen35Layers are the keys of the layers' kinds, and of the gated delta rule.
var qwen35Layers = keySet{
	switches: []string{deltaSwitch},
	rules: func(r *reading) rules {
		k := &r.delta
		k.taps.value, k.keyWidth.value, k.valueWidth.value, k.keyHeads.value, k.valueHeads.value, k.every.value = 4, 128, 128, 16, 32, qwen35Every
		return rules{
			"layer_types":             k.layerTypes,
			"full_attention_interval": whole(&k.every, 1, MaxLayers),
			"linear_conv_kernel_dim":  whole(&k.taps, 1, tensorops.MaxConvTaps),
			"linear_key_head_dim":     whole(&k.keyWidth, 1, tensorops.MaxDeltaWidth),
			"linear_value_head_dim":   whole(&k.valueWidth, 1, tensorops.MaxDeltaWidth),
			"linear_num_key_heads":    whole(&k.keyHeads, 1, MaxHeads),
			"linear_num_value_heads":  whole(&k.valueHeads, 1, MaxHeads),
		}
	},
	read: func(r *reading, c *Config) error {
		k := &r.delta
		layers := allBut(everyNth(k.every.value, c.Layers), c.Layers)
		if k.types != nil {
			if len(k.types) != c.Layers {
				return fmt.Errorf("layer_types has %d entries, but num_hidden_layers is %d", len(k.types), c.Layers)
			}
			layers = nil
			for i, t := range k.types {
				if t == linearAttention {
					layers = append(layers, i)
				}
			}
		}
		if len(layers) > 0 {
			c.Delta = DeltaConfig{layers, k.keyHeads.value, k.valueHeads.value, k.keyWidth.value, k.valueWidth.value, k.taps.value}
		}
		return nil
	},
	write: func(c Config, h *hfWritten) {
		d := c.Delta
		for i := range c.Layers {
			t := fullAttention
			if slices.Contains(d.Layers, i) {
				t = linearAttention
			}
			h.LayerTypes = append(h.LayerTypes, t)
		}
		if d.none() {
			return
		}
		h.add("linear_conv_kernel_dim", d.Taps)
		h.add("linear_key_head_dim", d.KeyWidth)
		h.add("linear_value_head_dim", d.ValueWidth)
		h.add("linear_num_key_heads", d.KeyHeads)
		h.add("linear_num_value_heads", d.ValueHeads)
	},
}

// layerTypes reads the kinds of the layers; null: every fourth has attention.
func (k *deltaKeys) layerTypes(key string, v json.RawMessage) error {
	if string(v) == "null" {
		return nil
	}
	var types []string
	if err := json.Unmarshal(v, &types); err != nil {
		return fmt.Errorf("%s is %s: it must be a list of %q and %q", key, show(v), fullAttention, linearAttention)
	}
	if len(types) > MaxLayers {
		return fmt.Errorf("%s has %d entries; the limit is %d", key, len(types), MaxLayers)
	}
	known := []string{fullAttention, linearAttention}
	for i, t := range types {
		if !slices.Contains(known, t) {
			return fmt.Errorf("%s: layer %d is %q: it must be one of %s", key, i, t, strings.Join(known, ", "))
		}
	}
	k.types = types
	return nil
}
