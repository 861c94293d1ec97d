package stages

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// window returns the number of positions to which the queries of a decoder layer attend, including
// their own; 0: all.
func (c Config) window(layer int) int {
	if _, full := slices.BinarySearch(c.Full, layer); full { // checkWindow makes sure of the order
		return 0
	}
	return c.Window
}

func (c Config) checkWindow() error {
	switch {
	case c.Window < 0 || c.Window > MaxContext:
		return fmt.Errorf("%w: the window is %d positions: it must be from 0 (all) to %d", ErrModel, c.Window, MaxContext)
	case c.Window == 0 && len(c.Full) > 0:
		return fmt.Errorf("%w: layers %d are set to attend to all positions, but the other layers have no window", ErrModel, c.Full)
	}
	return c.checkLayers("layers that attend to all positions", c.Full)
}

// The keys of windows in a config.json. sliding_window is the number of positions. Qwen also has
// use_sliding_window, and layer_types or max_window_layers, the first layer with the window.
const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
)

// windows holds the keys of windows until it is known which of them apply.
type windows struct {
	size  said[int] // 0: null
	use   said[bool]
	first said[int]
	every said[int] // distance of the layers without a window
	types []string
	// hasUse says that the family has the key use_sliding_window.
	hasUse bool
}

// sliding reads sliding_window.
func (w *windows) sliding(key string, v json.RawMessage) error {
	if string(v) == "null" {
		w.size.value = 0
		return nil
	}
	return whole(&w.size, 1, maxSaidWindow)(key, v)
}

// maxSaidWindow exceeds the positions of any model; published files contain such windows.
const maxSaidWindow = 1 << 40

// layerKeys returns the rules of Qwen's keys.
func (w *windows) layerKeys() rules {
	w.size.value, w.first.value, w.hasUse = 4096, 28, true
	return rules{"sliding_window": w.sliding, "use_sliding_window": truth(&w.use),
		"max_window_layers": whole(&w.first, 0, maxSaidWindow), "layer_types": w.layerTypes}
}

func (w *windows) layerTypes(key string, v json.RawMessage) error {
	if string(v) == "null" {
		return nil
	}
	w.types = []string{}
	if err := json.Unmarshal(v, &w.types); err != nil {
		return fmt.Errorf("%s is %s: it must be a list of %q and %q", key, show(v), fullAttention, slidingAttention)
	}
	for i, t := range w.types {
		if t != fullAttention && t != slidingAttention {
			return fmt.Errorf("%s: layer %d is %q, but only %q and %q are supported", key, i, t, fullAttention, slidingAttention)
		}
	}
	return nil
}

// read sets a Config's window from Qwen's keys.
func (w *windows) read(c *Config) error {
	size := 0
	if w.use.value {
		size = w.size.value
	}
	full, err := w.full(c, size, func(i int) bool { return i >= w.first.value }, false)
	if err == nil {
		c.setWindow(size, full)
	}
	return err
}

// full returns the layers without a window. usual says which layers have one if there is no
// layer_types; nil: none. A layer with a window needs its size, if layer_types names the layer or
// usual is strict.
func (w *windows) full(c *Config, size int, usual func(layer int) bool, strict bool) (full []int, err error) {
	if w.types != nil && len(w.types) != c.Layers {
		return nil, fmt.Errorf("layer_types has %d entries, but num_hidden_layers is %d", len(w.types), c.Layers)
	}
	for i := range c.Layers {
		windowed := w.types == nil && usual != nil && usual(i) || w.types != nil && w.types[i] == slidingAttention
		if !windowed {
			full = append(full, i)
		} else if size == 0 && (w.types != nil || strict) {
			use := ""
			if w.hasUse {
				use = fmt.Sprintf("use_sliding_window is %v and ", w.use.value)
			}
			return nil, fmt.Errorf("layer_types: layer %d is %q, but it has no window: %ssliding_window is %s", i, slidingAttention, use,
				orNone(w.size.value))
		}
	}
	return full, nil
}

func orNone(n int) string {
	if n == 0 {
		return "null"
	}
	return strconv.Itoa(n)
}

// setWindow sets the window, unless it has no effect.
func (c *Config) setWindow(size int, full []int) {
	if size == 0 || size >= c.Context || c.Layers > 0 && len(full) == c.Layers {
		return
	}
	c.Window, c.Full = size, full
}

// writeWindow writes the window to a config.json of a family whose layers all have the same. A
// missing key would mean a window of 4096.
func (h *hfWritten) writeWindow(c Config) {
	h.Window = json.RawMessage(orNone(c.Window))
}

// writeLayerWindows writes the window with Qwen's keys.
func (h *hfWritten) writeLayerWindows(c Config) {
	if c.Window == 0 {
		return
	}
	h.Window, h.UseWindow = json.RawMessage(orNone(c.Window)), true
	first := len(c.Full)
	for i, layer := range c.Full {
		if layer != i { // not all first
			first = -1
		}
	}
	if first >= 0 {
		h.WindowLayers = &first
		return
	}
	h.LayerTypes = c.layerTypes()
}

// layerTypes returns the value of layer_types.
func (c Config) layerTypes() (types []string) {
	for i := range c.Layers {
		t := slidingAttention
		if c.window(i) == 0 {
			t = fullAttention
		}
		types = append(types, t)
	}
	return types
}

// patternWindows are the keys of families in which every so many layers attend to all positions and
// the others to a window, whose layers may differ in more than that. So the layers keep their kinds
// if the window covers all positions. missing is the value of a missing sliding_window. everyKey is
// a key of the distance, without layer_types; empty: there is none.
func patternWindows(missing, every int, everyKey string) keySet {
	return keySet{
		rules: func(r *reading) rules {
			r.windows.size.value, r.windows.every.value = missing, every
			own := rules{"sliding_window": r.windows.sliding, "layer_types": r.windows.layerTypes}
			if everyKey != "" {
				own[everyKey] = whole(&r.windows.every, 1, MaxLayers)
			}
			return own
		},
		read: func(r *reading, c *Config) (err error) {
			w, every := &r.windows, r.windows.every.value
			c.Full, err = w.full(c, w.size.value, func(i int) bool { return (i+1)%every != 0 }, true)
			if c.Window = min(w.size.value, MaxContext); len(c.Full) == c.Layers {
				c.Window, c.Full = 0, nil
			}
			return err
		},
		write: func(c Config, h *hfWritten) {
			h.writeWindow(c)
			if c.Window == 0 { // transformers makes the mask of a window even if no layer has one
				h.Window = json.RawMessage(strconv.Itoa(c.Positions()))
			}
			h.LayerTypes = c.layerTypes()
		},
	}
}

// everyNth returns the layers n−1, 2n−1, and so on.
func everyNth(n, layers int) (list []int) {
	for i := n - 1; i < layers; i += n {
		list = append(list, i)
	}
	return list
}

// noWindow refuses a window in a family that has none.
func (c Config) noWindow() error {
	if c.Window != 0 {
		return fmt.Errorf("%w: %s has no window: use a family that has one, such as mistral", ErrModel, c.Family)
	}
	return nil
}

// allWindowed refuses layers without the window in a family in which all layers have it.
func (c Config) allWindowed() error {
	if len(c.Full) > 0 {
		return fmt.Errorf("%w: all layers of %s have its window, but %d are configured without it", ErrModel, c.Family, c.Full)
	}
	return nil
}

// noMLPBias refuses biases of the feed-forward part in a family that has none.
func (c Config) noMLPBias() error {
	if c.MLPBias {
		return fmt.Errorf("%w: %s has no mlp_bias: leave it out", ErrModel, c.Family)
	}
	return nil
}

// plain refuses the biases that only some families support.
func (c Config) plain() error {
	var has []string
	if c.AttentionBias {
		has = append(has, "attention_bias")
	}
	if c.MLPBias {
		has = append(has, "mlp_bias")
	}
	if has != nil {
		return fmt.Errorf("%w: %s has no %s", ErrModel, c.Family, strings.Join(has, " and no "))
	}
	return nil
}
