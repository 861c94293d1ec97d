package stages

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/troupe-ml/troupe/tensorops"
)

// Gemma4 is the family of the dense text models of Gemma 4: Gemma 3 with norms of weight w, scores
// that are not scaled, norms on the values, and a constant for each layer's output. Layers that attend
// to all positions have heads of another width, perhaps fewer of keys and no values of their own, and
// rotate a part of each head. In the small models, such as E2B, each layer has an input of its own from
// a second embedding, and the last layers use the keys and values of an earlier one.
const Gemma4 = "gemma4_text"

var gemma4Family = &decoder{
	model: Gemma4, hf: "Gemma4ForCausalLM", names: gemma4Names,
	outer: outerModel{model: "gemma4", class: "Gemma4ForConditionalGeneration",
		keys: []string{"vision_config", "audio_config", "boi_token_id", "eoi_token_id", "image_token_id", "video_token_id", "boa_token_id",
			"eoa_token_id", "eoa_token_index", "audio_token_id", "vision_soft_tokens_per_image"},
		parts: []string{"vision_tower.", "audio_tower.", "embed_vision.", "embed_audio."}},
	sizes: sizes{vocab: 262144, positions: 131072, hidden: 2304, layers: 30, heads: 8, ffn: 9216, kvHeads: 4, headDim: 256, eps: 1e-6,
		theta: gemma3Theta, tie: true},
	own: []keySet{noPadding, attentionBias(false), patternWindows(512, gemma3Every, ""), gelu,
		ropeByType(gemma3Theta, gemma3WindowTheta, "rope_local_base_freq"), gemma4Rope, gemma4Heads,
		softCap("final_logit_softcapping", 0, func(c *Config) *float64 { return &c.LogitSoftCap }),
		fixed("use_bidirectional_attention", `null`, `"vision"`), // which text alone does not have
		gemma4Layers, fixed("enable_moe_block", `false`), ignored("num_experts", "top_k_experts", "moe_intermediate_size"),
	},
	spec: func(c Config, i int, l *layerSpec) {
		l.norms, l.act.Act, l.scale, l.qkNorm, l.constant = normsBoth, tensorops.TanhGELU, 1, qkNormHeads, true
		if i < c.Layers { // not one of multi-token prediction
			l.input = c.LayerInput
			c.shareKV(i, l)
		}
		if l.valueNorm = !l.shares; l.shares && c.WideShared {
			l.ffn *= 2
		}
		if l.window > 0 {
			l.rope = &ropeSpec{theta: c.windowTheta()}
			return
		}
		l.headDim, l.kvHeads, l.valuesAreKeys = cmp.Or(c.FullHeadDim, l.headDim), cmp.Or(c.FullKVHeads, l.kvHeads),
			c.ValuesAreKeys && !l.shares
	},
	finish: func(c Config, e *endsSpec) { e.embedding = math.Sqrt(float64(c.Hidden)) },
	limits: func(c Config) error {
		switch d := c.FullHeadDim; {
		case c.headDim()%2 != 0:
			return fmt.Errorf("%w: heads of %d channels in the layers with a window: it must be even", ErrModel, c.headDim())
		case d%2 != 0 || d*c.Heads > MaxHidden:
			return fmt.Errorf("%w: heads of %d channels in the layers without a window: it must be even, and %d heads have at most %d channels",
				ErrModel, d, c.Heads, MaxHidden)
		case c.FullKVHeads != 0 && c.Heads%c.FullKVHeads != 0:
			return fmt.Errorf("%w: heads %d is not a multiple of kv_heads %d of the layers without a window", ErrModel, c.Heads, c.FullKVHeads)
		case c.Window > 0 && c.window(c.Layers-1) > 0:
			return fmt.Errorf("%w: the last layer of %s attends to all positions, but here it has a window", ErrModel, c.Family)
		}
		d := cmp.Or(c.FullHeadDim, c.headDim())
		return errors.Join(c.noMLPBias(), c.checkPassing(), c.RopeScaling.check(c.RopeTheta, d))
	},
	scratch: func(c *Config) {
		c.LogitSoftCap, c.FullHeadDim = 30, 2*c.headDim()
		c.RopeScaling = RopeScaling{Type: ropeProportional, Partial: gemma4Share}
		if c.Window == 0 {
			return
		}
		if c.RopeTheta != gemma3WindowTheta {
			c.WindowTheta = gemma3WindowTheta
		}
		if c.Full = everyNth(gemma3Every, c.Layers); c.Layers > 0 && !slices.Contains(c.Full, c.Layers-1) {
			c.Full = append(c.Full, c.Layers-1)
		}
		if len(c.Full) == c.Layers {
			c.Window, c.Full, c.WindowTheta = 0, nil, 0
		}
	},
}

// gemma4Share is the share of each head that rotates in layers that attend to all positions, and
// gemma4Width the width of their heads, unless a configuration says otherwise.
const (
	gemma4Share = 0.25
	gemma4Width = 512
)

var gemma4Names = func() tensorNames {
	n := gemmaNames
	n.constant = "layer_scalar"
	n.inputs = inputNames{"model.embed_tokens_per_layer", "model.per_layer_model_projection", "model.per_layer_projection_norm",
		"per_layer_input_gate", "per_layer_projection", "post_per_layer_input_norm"}
	return n
}()

// gemma4Rope are the rotary positions without rope_parameters. The keys of earlier releases have no
// effect in this family's class.
var gemma4Rope = keySet{
	switches: []string{partialSwitch},
	rules: func(r *reading) rules {
		r.rope.hasPartial = true
		return rules{"rope_theta": only(`null`), "rope_local_base_freq": only(`null`), "rope_scaling": only(`null`),
			"partial_rotary_factor": only(`null`)}
	},
	read: func(r *reading, c *Config) error {
		if r.rope.kind.key == "" && r.theta.key == "" {
			c.RopeScaling = RopeScaling{Type: ropeProportional, Partial: gemma4Share}
		}
		return nil
	},
}

// fullHeads holds the keys of layers that attend to all positions.
type fullHeads struct {
	width, kvHeads said[int]
	valuesAreKeys  said[bool]
	layers         map[int]fullLayer // of per_layer_config; nil: absent
}

type fullLayer struct{ width, kvHeads int }

// gemma4Heads are the keys of the heads of layers that attend to all positions. per_layer_config,
// which transformers writes, takes the place of the others.
var gemma4Heads = keySet{
	switches: []string{fullHeadSwitch, fullKVSwitch, valuesSwitch},
	rules: func(r *reading) rules {
		f := &r.fullHeads
		f.width.value = gemma4Width
		return rules{
			"head_dim": whole(&r.headDim, 1, MaxHidden), "num_key_value_heads": whole(&r.kvHeads, 1, MaxHeads),
			"global_head_dim":            whole(&f.width, 1, MaxHidden),
			"num_global_key_value_heads": orNull(whole(&f.kvHeads, 1, MaxHeads)),
			"attention_k_eq_v":           truth(&f.valuesAreKeys),
			"per_layer_config":           orNull(f.readLayers),
		}
	},
	read: func(r *reading, c *Config) error {
		f := &r.fullHeads
		c.ValuesAreKeys = f.valuesAreKeys.value
		is := fullLayer{f.width.value, 0}
		if c.ValuesAreKeys {
			is.kvHeads = f.kvHeads.value
		}
		if f.layers != nil {
			var err error
			if is, err = f.sameOf(c, r.headDim.value); err != nil {
				return err
			}
		}
		if is.width != c.headDim() {
			c.FullHeadDim = is.width
		}
		if is.kvHeads != 0 && is.kvHeads != c.KVHeads {
			c.FullKVHeads = is.kvHeads
		}
		return nil
	},
	write: func(c Config, h *hfWritten) {
		layers := make(map[int]any)
		width, kvHeads := cmp.Or(c.FullHeadDim, c.headDim()), cmp.Or(c.FullKVHeads, c.KVHeads)
		for i := range c.Layers {
			if c.window(i) == 0 {
				layers[i] = map[string]int{"head_dim": width, "num_key_value_heads": kvHeads}
			}
		}
		h.add("per_layer_config", layers)
		h.add("global_head_dim", width)
		h.add("num_global_key_value_heads", kvHeads)
		h.add("attention_k_eq_v", c.ValuesAreKeys)
	},
}

// readLayers is the rule of per_layer_config.
func (f *fullHeads) readLayers(key string, v json.RawMessage) error {
	members, err := membersOf(v)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	f.layers = make(map[int]fullLayer)
	for _, m := range members {
		name := key + "." + m.key
		i, err := strconv.Atoi(m.key)
		if err != nil || i < 0 || i >= MaxLayers {
			return fmt.Errorf("%s: it must be the number of a layer", name)
		}
		settings, err := membersOf(m.value)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		var width, kvHeads said[int]
		known := rules{"head_dim": whole(&width, 1, MaxHidden), "num_key_value_heads": whole(&kvHeads, 1, MaxHeads)}
		for _, one := range settings {
			rule, ok := known[one.key]
			if !ok {
				return fmt.Errorf("%s.%s is %s, but only head_dim and num_key_value_heads are supported", name, one.key, show(one.value))
			}
			if err := rule(name+"."+one.key, one.value); err != nil {
				return err
			}
		}
		f.layers[i] = fullLayer{width.value, kvHeads.value}
	}
	return nil
}

// sameOf returns what per_layer_config says of the layers that attend to all positions, which must be
// the same, and nothing of the others.
func (f *fullHeads) sameOf(c *Config, usual int) (is fullLayer, err error) {
	first := true
	for i := range c.Layers {
		l, ok := f.layers[i]
		delete(f.layers, i)
		l.width = cmp.Or(l.width, usual)
		switch {
		case c.window(i) > 0 && ok && (l.width != usual || l.kvHeads != 0 && l.kvHeads != c.KVHeads):
			return is, fmt.Errorf("per_layer_config: layer %d has a window, but heads of its own", i)
		case c.window(i) > 0:
		case first:
			is, first = l, false
		case l != is:
			return is, fmt.Errorf("per_layer_config: layer %d differs from the layers without a window before it", i)
		}
	}
	if len(f.layers) > 0 {
		return is, fmt.Errorf("per_layer_config has layers beyond num_hidden_layers, which is %d", c.Layers)
	}
	return is, nil
}
