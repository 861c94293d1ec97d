package stages

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// GPTOSS is the family of GPT-OSS: experts with biases in every layer, a clamped gate, a learned sink for each head, and a window in
// every second layer.
const GPTOSS = "gpt_oss"

// The defaults of transformers' configuration class.
const (
	gptOSSEvery     = 2 // every so many layers attend to all positions
	gptOSSWindow    = 128
	gptOSSHeadDim   = 64
	gptOSSGateLimit = 7
	gptOSSGateAlpha = 1.702
)

// gptOSSRope is the scaling of rotary positions in a file that says nothing of them.
var gptOSSRope = RopeScaling{Type: ropeYarn, Factor: 32, Original: 4096, BetaFast: 32, BetaSlow: 1, Fractional: true}

var gptOSSFamily = &decoder{
	model: GPTOSS, hf: "GptOssForCausalLM", names: gptOSSNames,
	sizes: sizes{vocab: 201088, positions: 131072, hidden: 2880, layers: 36, heads: 64, ffn: 2880, kvHeads: 8, headDim: gptOSSHeadDim,
		eps: 1e-5, theta: 150000},
	own: []keySet{gptOSSBias, gptOSSExperts, gptOSSRopeKeys, patternWindows(gptOSSWindow, gptOSSEvery, ""), trainingOfExperts, mxfp4Keys,
		ignored("initial_context_length")}, // of other programs; the same as rope_scaling.original_max_position_embeddings
	spec: func(c Config, _ int, l *layerSpec) {
		l.sinks, l.experts.biases = true, true
		l.act = tensorops.GateOpts{Act: tensorops.ClampedSwiGLU, Limit: cmp.Or(c.Experts.GateLimit, gptOSSGateLimit),
			Alpha: cmp.Or(c.Experts.GateAlpha, gptOSSGateAlpha)}
	},
	limits: func(c Config) error {
		x := c.Experts
		if !x.none() && (x.Width != c.FFN || len(x.Dense) > 0 || !x.Renormalize) {
			return fmt.Errorf("%w: in %s all layers have experts, each of width ffn, and the weights of a token's experts add up to 1",
				ErrModel, c.Family)
		}
		return errors.Join(c.noMLPBias(), c.needExperts())
	},
	traits: ExpertTraits{Any: true, UsuallyNormed: true},
	scratch: func(c *Config) {
		c.AttentionBias, c.Experts.Renormalize = true, !c.Experts.none()
		gemmaWindows(c, gptOSSEvery)
	},
}

// gptOSSBias is the key of the biases of q, k, v and attention's output, which the family has by default.
var gptOSSBias = keySet{
	rules: func(r *reading) rules {
		r.attentionBias.value = true
		return rules{"attention_bias": truth(&r.attentionBias)}
	},
	read: func(r *reading, c *Config) error { c.AttentionBias = r.attentionBias.value; return nil },
	write: func(c Config, h *hfWritten) {
		if h.AttentionBias = c.AttentionBias; !c.AttentionBias {
			h.add("attention_bias", false)
		}
	},
}

var gptOSSExperts = keySet{
	switches: []string{expertSwitch, gateSwitch},
	rules: func(r *reading) rules {
		k := &r.experts
		k.count.value, k.perToken.value, k.every.value, k.renormalize.value = 128, 4, 1, true
		return rules{
			"num_local_experts":   whole(&k.count, 1, MaxExperts),
			"num_experts":         whole(&k.count, 1, MaxExperts),
			"num_experts_per_tok": whole(&k.perToken, 1, MaxExperts),
			"experts_per_token":   whole(&k.perTokenAgain, 1, MaxExperts), // of other programs; transformers does not read it
			"swiglu_limit":        number(r.number("swiglu_limit", gptOSSGateLimit), minFactor, maxFactor),
			"swiglu_alpha":        number(r.number("swiglu_alpha", gptOSSGateAlpha), minFactor, maxFactor),
			"head_dim": func(key string, v json.RawMessage) error {
				if string(v) == "null" {
					return r.headDim.set(key, 0)
				}
				return whole(&r.headDim, 1, MaxHidden)(key, v)
			},
		}
	},
	read: func(r *reading, c *Config) error {
		k := &r.experts
		if again := k.perTokenAgain; again.key != "" && again.value != k.perToken.value {
			return fmt.Errorf("%s is %d, but num_experts_per_tok is %d. The two keys mean the same: remove the first", again.key,
				again.value, k.perToken.value)
		}
		k.width.value = c.FFN
		c.Experts = k.config(c.Layers)
		if v := r.number("swiglu_limit", 0).value; v != gptOSSGateLimit {
			c.Experts.GateLimit = v
		}
		if v := r.number("swiglu_alpha", 0).value; v != gptOSSGateAlpha {
			c.Experts.GateAlpha = v
		}
		return nil
	},
	write: func(c Config, h *hfWritten) {
		h.add("num_local_experts", c.Experts.Count)
		h.add("num_experts_per_tok", c.Experts.PerToken)
		h.add("swiglu_limit", fractional(cmp.Or(c.Experts.GateLimit, gptOSSGateLimit)))
		h.add("swiglu_alpha", fractional(cmp.Or(c.Experts.GateAlpha, gptOSSGateAlpha)))
	},
}

// gptOSSRopeKeys are the keys of rotary positions, which are scaled in a file without them.
var gptOSSRopeKeys = keySet{
	rules: func(r *reading) rules {
		return rules{"rope_scaling": func(key string, v json.RawMessage) error {
			r.rope.null = r.rope.null || string(v) == "null"
			return r.rope.read(r)(key, v)
		}}
	},
	read: func(r *reading, c *Config) error {
		switch {
		case r.rope.given:
			return nil
		case r.rope.null:
			return errors.New("rope_scaling is null, which release 4 of transformers takes for no scaling and release 5 for yarn: set " +
				"rope_parameters")
		}
		c.RopeScaling = gptOSSRope
		return nil
	},
	write: func(_ Config, h *hfWritten) {
		if h.RopeScaling == nil {
			h.RopeScaling = &hfRope{Type: ropeDefault}
		}
	},
}

// mxfp4Keys is the key of experts whose published weights have 4 bits. A file with other weights may have the key, too, since transformers
// keeps it.
var mxfp4Keys = keySet{rules: func(*reading) rules {
	known := rules{
		"quant_method":           only(`"mxfp4"`),
		"modules_to_not_convert": neutral, // the names of the tensors say it
		"dequantize":             only(`true`, `false`, `null`),
	}
	return rules{quantizationKey: func(key string, v json.RawMessage) error {
		method := false
		err := eachMember(key, v, func(name string, m member) error {
			method = method || m.key == "quant_method"
			if rule, ok := known[m.key]; ok {
				return rule(name, m.value)
			}
			return fmt.Errorf("%s is %s, but Troupe does not know this key", name, show(m.value))
		})
		if err == nil && !method && string(v) != "null" {
			err = fmt.Errorf("%s.quant_method is missing: only \"mxfp4\" is supported", key)
		}
		return err
	}}
}}

// quantizationKey is the key of weights that a file does not have as numbers. What Troupe writes has none.
const quantizationKey = "quantization_config"

var gptOSSNames = func() tensorNames {
	n := llamaNames
	n.sinks = "self_attn.sinks"
	n.experts = expertNames{router: "mlp.router", list: "mlp.experts", gate: "gate_proj", up: "up_proj", down: "down_proj", stacked: true}
	return n
}()
