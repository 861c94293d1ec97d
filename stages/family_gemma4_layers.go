package stages

import (
	"encoding/json"
	"fmt"
)

// gemma4Input is the width of each layer's input, and gemma4Vocab the number of rows of their embedding, unless a configuration says
// otherwise.
const (
	gemma4Input = 256
	gemma4Vocab = 262144
)

// layerKeys holds the keys of what layers pass on beside the residual stream.
type layerKeys struct {
	width, vocab, shared said[int]
	wide                 said[bool]
	vocabErr             error // of a vocabulary that counts only with inputs of each layer
}

// gemma4Layers are the keys of inputs of each layer and of layers that share keys and values.
var gemma4Layers = keySet{
	switches: []string{inputSwitch, sharedKVSwitch, wideSwitch},
	rules: func(r *reading) rules {
		k := &r.layerKeys
		k.width.value, k.vocab.value = gemma4Input, gemma4Vocab
		return rules{
			"hidden_size_per_layer_input": nullAsZero(&k.width, whole(&k.width, 0, MaxHidden)),
			"vocab_size_per_layer_input": func(key string, v json.RawMessage) error {
				k.vocabErr = whole(&k.vocab, 1, MaxVocab)(key, v)
				return nil
			},
			"num_kv_shared_layers": whole(&k.shared, 0, MaxLayers),
			"use_double_wide_mlp":  truth(&k.wide),
		}
	},
	read: func(r *reading, c *Config) error {
		k := &r.layerKeys
		c.LayerInput, c.SharedKV = k.width.value, k.shared.value
		c.WideShared = k.wide.value && c.SharedKV > 0 // which has no effect on other layers
		if err := k.checkInputs(c); err != nil {
			return err
		}
		switch n := c.SharedKV; {
		case n == 0:
		case n >= c.Layers:
			return fmt.Errorf("num_kv_shared_layers is %d, but num_hidden_layers is %d: at least one layer must have keys and values of its own",
				n, c.Layers)
		case !c.ofAllKinds():
			return fmt.Errorf("num_kv_shared_layers is %d, but no layer before these has the keys and values of one of their layer_types", n)
		case c.WideShared && c.FFN > MaxFFN/2:
			return fmt.Errorf("use_double_wide_mlp is true, but twice the intermediate_size of %d exceeds %d", c.FFN, MaxFFN)
		}
		return nil
	},
	write: func(c Config, h *hfWritten) {
		h.add("hidden_size_per_layer_input", c.LayerInput)
		h.add("num_kv_shared_layers", c.SharedKV)
		if c.LayerInput > 0 {
			h.add("vocab_size_per_layer_input", c.Vocab)
		}
		if c.SharedKV > 0 {
			h.add("use_double_wide_mlp", c.WideShared)
		}
	},
}

// checkInputs checks the keys of the inputs of each layer.
func (k *layerKeys) checkInputs(c *Config) error {
	means := func(key string, v said[int]) string {
		if v.key == "" {
			return fmt.Sprintf("%s is missing, which means %d", key, v.value)
		}
		return fmt.Sprintf("%s is %d", key, v.value)
	}
	const width = "hidden_size_per_layer_input"
	switch n := c.LayerInput; {
	case n == 0:
		return nil
	case k.vocabErr != nil:
		return k.vocabErr
	case k.vocab.value != c.Vocab:
		return fmt.Errorf("%s, but vocab_size is %d: both embeddings must have the same tokens; set %s to 0 if layers have no inputs",
			means("vocab_size_per_layer_input", k.vocab), c.Vocab, width)
	case c.Layers == 0 || n*c.Layers > MaxFFN:
		return fmt.Errorf("%s, and num_hidden_layers is %d: the product must be from 1 to %d", means(width, k.width), c.Layers, MaxFFN)
	}
	return nil
}

// nullAsZero is a rule that takes null as 0.
func nullAsZero(into *said[int], rule func(string, json.RawMessage) error) func(string, json.RawMessage) error {
	return func(key string, v json.RawMessage) error {
		if string(v) == "null" {
			return into.set(key, 0)
		}
		return rule(key, v)
	}
}
