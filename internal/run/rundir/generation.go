package rundir

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// Generation is what generation_config.json says about how to generate a text. nil: it says nothing.
type Generation struct {
	Sample            *bool // do_sample; false: always take the most likely token
	Temperature       *float64
	TopK              *int
	TopP              *float64
	MinP              *float64
	RepetitionPenalty *float64
	NewTokens         *int // most tokens to generate
	Stop              []string
	// Unsupported are the keys, with their values, that have an effect in other programs and none in Troupe.
	Unsupported []string
}

// maxNewTokens bounds max_new_tokens.
const maxNewTokens = 1 << 31

// neutral has the values of keys with which they have no effect on the text, for keys that Troupe does not support. Without a value
// they never have an effect on it, or say only what other keys need.
var neutral = map[string][]string{
	"early_stopping": {"false"}, "num_beams": {"1"}, "num_beam_groups": {"1"}, "diversity_penalty": {"0"}, "length_penalty": nil,
	"num_return_sequences": {"1"}, "min_length": {"0"}, "min_new_tokens": {"0"}, "max_time": {}, "typical_p": {"1"}, "top_h": {},
	"epsilon_cutoff": {"0"}, "eta_cutoff": {"0"}, "encoder_repetition_penalty": {"1"}, "no_repeat_ngram_size": {"0"},
	"encoder_no_repeat_ngram_size": {"0"}, "bad_words_ids": {}, "renormalize_logits": {"false"}, "forced_bos_token_id": {},
	"forced_eos_token_id": {}, "remove_invalid_values": nil, "exponential_decay_length_penalty": {}, "suppress_tokens": {"[]"},
	"begin_suppress_tokens": {"[]"}, "sequence_bias": {}, "token_healing": {"false"}, "guidance_scale": {"1"}, "watermarking_config": {},
	"penalty_alpha": {"0"}, "max_length": {"20"},

	"eos_token_id": nil, "bos_token_id": nil, "pad_token_id": nil, "decoder_start_token_id": nil, "transformers_version": nil,
	"_from_model_config": nil, "use_cache": nil, "cache_implementation": nil, "cache_config": nil, "max_cache_len": nil, "use_mtp": nil,
	"output_attentions": nil, "output_hidden_states": nil, "output_scores": nil, "output_logits": nil, "return_dict_in_generate": nil,
	"is_assistant": nil, "num_assistant_tokens": nil, "num_assistant_tokens_schedule": nil, "assistant_confidence_threshold": nil,
	"prompt_lookup_num_tokens": nil, "max_matching_ngram_size": nil, "assistant_early_exit": nil, "assistant_lookbehind": nil,
	"target_lookbehind": nil, "assistant_ensemble_weight": nil, "speculation_type": nil, "compile_config": nil, "disable_compile": nil,
	"low_memory": nil, "trust_remote_code": nil, "generation_kwargs": {"{}"},
}

// ReadGeneration reads generation_config.json, which may be missing. An error names the file and the key.
func ReadGeneration(c Files) (g Generation, err error) {
	members, err := readObject(c, GenerationFile)
	if err != nil {
		return g, err
	}
	honoured := map[string]func(json.RawMessage) error{
		"do_sample":          func(v json.RawMessage) error { return into(&g.Sample, v, "true or false") },
		"temperature":        between(&g.Temperature, 0, math.MaxFloat32, "a number from 0"),
		"top_k":              wholeFrom(&g.TopK, 0, math.MaxInt32, "a whole number from 0"),
		"top_p":              between(&g.TopP, 0, 1, "a number from 0 to 1"),
		"min_p":              between(&g.MinP, 0, 1-1e-9, "a number from 0, below 1"),
		"repetition_penalty": between(&g.RepetitionPenalty, math.SmallestNonzeroFloat32, math.MaxFloat32, "a number above 0"),
		"max_new_tokens":     wholeFrom(&g.NewTokens, 1, maxNewTokens-1, "a whole number from 1 to 2147483647"),
		"stop_strings":       func(v json.RawMessage) error { return stops(&g.Stop, v) },
	}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		v := members[key]
		if string(v) == "null" {
			continue
		}
		if read := honoured[key]; read != nil {
			if err := read(v); err != nil {
				return g, fmt.Errorf("%s: %s is %s: it must be %w", GenerationFile, key, strictjson.Show(v), err)
			}
			continue
		}
		values, known := neutral[key]
		switch {
		case known && values == nil, slices.ContainsFunc(values, func(one string) bool { return sameValue(one, v) }):
		case key == "max_length" && members["max_new_tokens"] != nil: // which has priority
		default:
			g.Unsupported = append(g.Unsupported, fmt.Sprintf("%s = %s", strictjson.Plain(key), strictjson.Show(v)))
		}
	}
	return g, nil
}

// sameValue compares JSON values: 1 and 1.0 are equal.
func sameValue(one string, v json.RawMessage) bool {
	var a, b float64
	if json.Unmarshal([]byte(one), &a) == nil && json.Unmarshal(v, &b) == nil {
		return a == b
	}
	return one == string(v)
}

// into reads a value; the error says what it must be.
func into[T any](to **T, v json.RawMessage, must string) error {
	var value T
	if json.Unmarshal(v, &value) != nil {
		return fmt.Errorf("%s", must)
	}
	*to = &value
	return nil
}

func between(to **float64, least, most float64, must string) func(json.RawMessage) error {
	return func(v json.RawMessage) error {
		if err := into(to, v, must); err != nil || !(**to >= least && **to <= most) {
			return fmt.Errorf("%s", must)
		}
		return nil
	}
}

func wholeFrom(to **int, least, most float64, must string) func(json.RawMessage) error {
	return func(v json.RawMessage) error {
		var number *float64 // files have 50.0, too
		if err := between(&number, least, most, must)(v); err != nil || *number != math.Trunc(*number) {
			return fmt.Errorf("%s", must)
		}
		n := int(*number)
		*to = &n
		return nil
	}
}

// stops reads a text or a list of texts.
func stops(to *[]string, v json.RawMessage) error {
	var one string
	if json.Unmarshal(v, &one) == nil {
		*to = []string{one}
	} else if json.Unmarshal(v, to) != nil {
		return fmt.Errorf("a text or a list of texts")
	}
	if slices.Contains(*to, "") {
		return fmt.Errorf("texts that are not empty")
	}
	return nil
}
