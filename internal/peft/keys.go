package peft

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// settings are what adapter_config.json says.
type settings struct {
	kind, base     string // peft_type, base_model_name_or_path
	rank           int
	alpha, dropout float64
	rslora, dora   bool
	targets        selector
	excluded       selector
	layers         []int    // layers_to_transform; nil: all
	layersNames    []string // layers_pattern
	ranks          patterns[int]
	alphas         patterns[float64]
	save           []string
	parameters     []string // target_parameters
	tied           bool     // ensure_weight_tying
}

// rules say for each known key how to treat its value: it is honored, has no effect (neutral), or is refused at other values than the
// given ones (only). null is the default of every key.
func (s *settings) rules() map[string]func(v json.RawMessage) error {
	return map[string]func(v json.RawMessage) error{
		"peft_type":               text(&s.kind),
		"base_model_name_or_path": text(&s.base),
		"r":                       whole(&s.rank, 1, MaxRank),
		"lora_alpha":              positive(&s.alpha, maxScale),
		"lora_dropout":            number(&s.dropout, 0, 1),
		"use_rslora":              truth(&s.rslora),
		"use_dora":                truth(&s.dora),
		"target_modules":          s.targets.read,
		"exclude_modules":         s.excluded.read,
		"layers_to_transform":     func(v json.RawMessage) (err error) { s.layers, err = oneOrMany[int](v); return err },
		"layers_pattern":          func(v json.RawMessage) (err error) { s.layersNames, err = oneOrMany[string](v); return err },
		"rank_pattern": s.ranks.reader(func(v json.RawMessage) (rank int, err error) {
			err = whole(&rank, 1, MaxRank)(v)
			return rank, err
		}),
		"alpha_pattern": s.alphas.reader(func(v json.RawMessage) (alpha float64, err error) {
			err = positive(&alpha, maxScale)(v)
			return alpha, err
		}),
		"modules_to_save":     func(v json.RawMessage) (err error) { s.save, err = oneOrMany[string](v); return err },
		"ensure_weight_tying": truth(&s.tied),

		// The initialization: these values leave the base as it is. Others (pissa, olora, corda, loftq, lora_ga) change the weights of
		// the base, too, so that the directory's tensors belong to other weights.
		"init_lora_weights": only(`true`, `false`, `"gaussian"`, `"eva"`, `"orthogonal"`),
		"eva_config":        neutral,

		"bias":                    only(`"none"`),
		"lora_bias":               only(`false`),
		"task_type":               only(`"CAUSAL_LM"`),
		"trainable_token_indices": only(`[]`, `{}`),
		"target_parameters":       func(v json.RawMessage) (err error) { s.parameters, err = oneOrMany[string](v); return err },
		"layer_replication":       only(`[]`),
		"alora_invocation_tokens": only(),
		"use_qalora":              only(`false`),
		"loftq_config":            only(`{}`),
		"corda_config":            only(),
		"lora_ga_config":          only(),
		"velora_config":           only(),
		"monteclora_config":       only(),
		"arrow_config":            only(),
		"use_bdlora":              only(),
		"kasa_config":             only(),
		"megatron_config":         only(),

		// How weights of the base are stored, how the adapter was made, and where it came from.
		"fan_in_fan_out": neutral, "megatron_core": neutral, "qalora_group_size": neutral,
		"auto_mapping": neutral, "inference_mode": neutral, "revision": neutral, "peft_version": neutral,
	}
}

// parse reads adapter_config.json. An error names the key.
func parse(data []byte) (*settings, error) {
	s := &settings{rank: 8, alpha: 8} // of LoraConfig
	rules := s.rules()
	err := members(data, func(key string, v json.RawMessage) error {
		if string(v) == "null" {
			return nil
		}
		rule, known := rules[key]
		if !known {
			return fmt.Errorf("%s is %s, but Troupe does not know this key. Remove it if it does not change what the adapter computes",
				strictjson.Quote(key), strictjson.Show(v))
		}
		if err := rule(v); err != nil {
			return fmt.Errorf("%s is %s: %w", key, strictjson.Show(v), err)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case s.kind != "LORA":
		return nil, fmt.Errorf("peft_type is %s: only LORA is supported", strictjson.Quote(s.kind))
	case s.targets.none() && s.parameters == nil:
		return nil, errors.New("target_modules is missing: name the modules that have an adapter")
	case s.dropout >= 1:
		return nil, errors.New("lora_dropout is 1: it must be below 1")
	case s.targets.whole != nil && (s.layers != nil || s.layersNames != nil):
		return nil, errors.New("layers_to_transform and layers_pattern need a list in target_modules")
	}
	if s.parameters != nil && (s.dropout > 0 || s.dora) { // as in PEFT
		return nil, errors.New("target_parameters needs lora_dropout = 0 and use_dora = false")
	}
	return s, s.checkParameters()
}

// members calls f for each key of an object, in order.
func members(data []byte, f func(key string, v json.RawMessage) error) error {
	dec, err := strictjson.NewDecoder(data)
	if err != nil {
		return err
	}
	return strictjson.Object(dec, func(key string) error {
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return err
		}
		return f(key, v)
	})
}

func text(into *string) func(json.RawMessage) error {
	return func(v json.RawMessage) error {
		if json.Unmarshal(v, into) != nil {
			return errors.New("it must be a text")
		}
		return nil
	}
}

func truth(into *bool) func(json.RawMessage) error {
	return func(v json.RawMessage) error {
		if json.Unmarshal(v, into) != nil {
			return errors.New("it must be true or false")
		}
		return nil
	}
}

// whole reads a whole number, which may be written as 8.0.
func whole(into *int, from, to int) func(json.RawMessage) error {
	return func(v json.RawMessage) error {
		var n float64
		if json.Unmarshal(v, &n) != nil || !(n >= float64(from) && n <= float64(to)) || n != float64(int(n)) {
			return fmt.Errorf("it must be a whole number from %d to %d", from, to)
		}
		*into = int(n)
		return nil
	}
}

func number(into *float64, from, to float64) func(json.RawMessage) error {
	return func(v json.RawMessage) error {
		if json.Unmarshal(v, into) != nil || string(v) == "null" || !(*into >= from && *into <= to) {
			return fmt.Errorf("it must be a number from %g to %g", from, to)
		}
		return nil
	}
}

// positive reads a number above 0: with 0, an adapter has no effect.
func positive(into *float64, to float64) func(json.RawMessage) error {
	return func(v json.RawMessage) error {
		if json.Unmarshal(v, into) != nil || !(*into > 0 && *into <= to) {
			return fmt.Errorf("it must be a number above 0, up to %g", to)
		}
		return nil
	}
}

// oneOrMany reads a value or a list of values.
func oneOrMany[T int | string](v json.RawMessage) (list []T, err error) {
	var one T
	if json.Unmarshal(v, &one) == nil {
		return []T{one}, nil
	}
	if json.Unmarshal(v, &list) != nil || len(list) > maxNames {
		return nil, fmt.Errorf("it must be a %T or a list of at most %d", one, maxNames)
	}
	if len(list) == 0 {
		return nil, nil
	}
	return list, nil
}

// only accepts the given values, written as in JSON, and null.
func only(values ...string) func(json.RawMessage) error {
	return func(v json.RawMessage) error {
		if slices.ContainsFunc(values, func(one string) bool { return same(v, one) }) {
			return nil
		}
		return fmt.Errorf("only %s is supported", strings.Join(append(values, "null"), " or "))
	}
}

func neutral(json.RawMessage) error { return nil }

// same compares two JSON values; 1 and 1.0 are the same number.
func same(v json.RawMessage, text string) bool {
	var a, b any
	return errors.Join(json.Unmarshal(v, &a), json.Unmarshal([]byte(text), &b)) == nil && reflect.DeepEqual(a, b)
}
