package stages

import (
	"encoding/json"
	"fmt"
	"slices"
)

// SmolLM3 is the family of SmolLM 3: Llama in which every fourth layer has no rotary positions.
const SmolLM3 = "smollm3"

// smolNoRope is the distance of the layers without rotary positions, unless config.json has another.
const smolNoRope = 4

var smolLM3Family = &decoder{
	model: SmolLM3, hf: "SmolLM3ForCausalLM", names: llamaNames,
	sizes: sizes{vocab: 128256, positions: 32768, hidden: 2048, layers: 36, heads: 16, ffn: 11008, kvHeads: 4, eps: 1e-6, theta: 2e6,
		tie: true},
	own: []keySet{noPadding, attentionBias(false), mlpBias(false), noRopeKeys, noRopeWindows,
		ignored("max_window_layers", "pretraining_tp")},
	scratch: func(c *Config) {
		if c.NoRope = everyNth(smolNoRope, c.Layers); c.Window == 0 {
			return
		}
		for i := range c.Layers {
			if !slices.Contains(c.NoRope, i) {
				c.Full = append(c.Full, i)
			}
		}
		if len(c.Full) == c.Layers { // no layer has the window
			c.Window, c.Full = 0, nil
		}
	},
}

// noRope holds the keys of the layers without rotary positions.
type noRope struct {
	rotates []int // 1 for each layer that rotates, else 0; nil: every so many
	every   said[int]
}

// list is the rule of no_rope_layers.
func (n *noRope) list(key string, v json.RawMessage) error {
	if string(v) == "null" {
		return nil
	}
	n.rotates = []int{}
	if err := json.Unmarshal(v, &n.rotates); err != nil ||
		slices.ContainsFunc(n.rotates, func(x int) bool { return x != 0 && x != 1 }) {
		return fmt.Errorf("%s is %s: it must be a list with 1 for each layer that has rotary positions, else 0", key, show(v))
	}
	return nil
}

var noRopeKeys = keySet{
	switches: []string{noRopeSwitch},
	rules: func(r *reading) rules {
		r.noRope.every.value = smolNoRope
		return rules{"no_rope_layers": r.noRope.list, "no_rope_layer_interval": whole(&r.noRope.every, 1, MaxLayers)}
	},
	read: func(r *reading, c *Config) error {
		if r.noRope.rotates == nil {
			c.NoRope = everyNth(r.noRope.every.value, c.Layers)
			return nil
		}
		if n := len(r.noRope.rotates); n < c.Layers {
			return fmt.Errorf("no_rope_layers has %d entries, but num_hidden_layers is %d", n, c.Layers)
		}
		for i, rotates := range r.noRope.rotates[:c.Layers] {
			if rotates == 0 {
				c.NoRope = append(c.NoRope, i)
			}
		}
		return nil
	},
	write: func(c Config, h *hfWritten) {
		list := make([]int, c.Layers)
		for i := range list {
			if !slices.Contains(c.NoRope, i) {
				list[i] = 1
			}
		}
		h.add("no_rope_layers", list)
	},
}

// noRopeWindows are the keys of windows, which only layers without rotary positions have unless
// layer_types names others.
var noRopeWindows = keySet{
	rules: func(r *reading) rules {
		r.windows.hasUse = true
		return rules{"sliding_window": r.windows.sliding, "use_sliding_window": truth(&r.windows.use), "layer_types": r.windows.layerTypes}
	},
	read: func(r *reading, c *Config) error {
		w, size := &r.windows, 0
		if w.use.value {
			size = w.size.value
		}
		full, err := w.full(c, size, func(i int) bool { return slices.Contains(c.NoRope, i) }, false)
		if err == nil {
			c.setWindow(size, full)
		}
		return err
	},
	write: func(c Config, h *hfWritten) {
		if c.Window > 0 {
			h.Window, h.UseWindow, h.LayerTypes = json.RawMessage(orNone(c.Window)), true, c.layerTypes()
		}
	},
}
