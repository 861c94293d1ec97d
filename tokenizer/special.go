package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Special are the ids of a model's special tokens by what they are for. tokenizer.json
// says which tokens are special, not what for: the files beside it do.
type Special struct {
	// BOS begins a text, PAD fills one up; -1: there is none.
	BOS, PAD int32
	// EOS ends a text; the first one is what is written at a document's end.
	EOS []int32
	// Stop are the ids at which generating ends.
	Stop []int32
}

// EndID returns the id that ends a document.
func (s Special) EndID() (int32, bool) {
	if len(s.EOS) == 0 {
		return 0, false
	}
	return s.EOS[0], true
}

// ReadSpecial reads what config.json, generation_config.json and tokenizer_config.json say
// about special tokens; each may be nil. As in transformers, a document's end is the
// tokenizer's eos_token, else the model's eos_token_id, and generating stops at
// generation_config's eos_token_id, else the model's, else at a document's end.
func ReadSpecial(tok Tokenizer, config, generation, tokenizerConfig []byte) (Special, error) {
	s := Special{BOS: -1, PAD: -1}
	var names struct {
		BOS json.RawMessage `json:"bos_token"`
		EOS json.RawMessage `json:"eos_token"`
		PAD json.RawMessage `json:"pad_token"`
	}
	type numbers struct {
		BOS json.RawMessage `json:"bos_token_id"`
		EOS json.RawMessage `json:"eos_token_id"`
		PAD json.RawMessage `json:"pad_token_id"`
	}
	var model, gen numbers
	for _, f := range []struct {
		name string
		data []byte
		into any
	}{{"config.json", config, &model}, {"generation_config.json", generation, &gen}, {"tokenizer_config.json", tokenizerConfig, &names}} {
		if f.data == nil {
			continue
		}
		if err := json.Unmarshal(f.data, f.into); err != nil {
			return s, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	pick := func(name, key string, byName json.RawMessage, model, gen json.RawMessage) (first, stop []int32, err error) {
		// Without a token to pad with nothing is amiss here: transformers would add one.
		if first, err = tokenNamed(tok, byName); err != nil && (name == "eos_token" || !errors.Is(err, errNoToken)) {
			return nil, nil, fmt.Errorf("tokenizer_config.json: %s: %w", name, err)
		}
		ofModel, err := tokenIDs(model)
		if err != nil {
			return nil, nil, fmt.Errorf("config.json: %s: %w", key, err)
		}
		ofGen, err := tokenIDs(gen)
		if err != nil {
			return nil, nil, fmt.Errorf("generation_config.json: %s: %w", key, err)
		}
		for _, ids := range [][]int32{ofModel, ofGen} {
			if len(first) == 0 {
				first = ids
			}
		}
		for _, ids := range [][]int32{ofGen, ofModel, first} {
			if len(stop) == 0 {
				stop = ids
			}
		}
		return first, stop, nil
	}
	var err error
	if s.EOS, s.Stop, err = pick("eos_token", "eos_token_id", names.EOS, model.EOS, gen.EOS); err != nil {
		return s, err
	}
	for _, one := range []struct {
		into             *int32
		name, key        string
		byName, mod, gen json.RawMessage
	}{
		{&s.BOS, "bos_token", "bos_token_id", names.BOS, model.BOS, gen.BOS},
		{&s.PAD, "pad_token", "pad_token_id", names.PAD, model.PAD, gen.PAD},
	} {
		ids, _, err := pick(one.name, one.key, one.byName, one.mod, one.gen)
		if err != nil {
			return s, err
		}
		if len(ids) > 0 {
			*one.into = ids[0]
		}
	}
	return s, nil
}

var errNoToken = errors.New("the tokenizer has no token")

// tokenNamed is the id of a token that is given by its name, alone or as the "content" of
// an object.
func tokenNamed(tok Tokenizer, value json.RawMessage) ([]int32, error) {
	if absent(value) {
		return nil, nil
	}
	var name string
	var object struct{ Content *string }
	if err := json.Unmarshal(value, &name); err != nil {
		if err := json.Unmarshal(value, &object); err != nil || object.Content == nil {
			return nil, fmt.Errorf("found %s where a token's name is needed", clip(value))
		}
		name = *object.Content
	}
	id, ok := tok.TokenID(name)
	if !ok {
		return nil, fmt.Errorf("%w %s", errNoToken, quote(name))
	}
	return []int32{id}, nil
}

// tokenIDs reads an id, or a list of them.
func tokenIDs(value json.RawMessage) ([]int32, error) {
	if absent(value) {
		return nil, nil
	}
	var one int64
	var all []int64
	if err := json.Unmarshal(value, &one); err == nil {
		all = []int64{one}
	} else if err := json.Unmarshal(value, &all); err != nil {
		return nil, fmt.Errorf("found %s where an id or a list of ids is needed", clip(value))
	}
	var ids []int32
	for _, id := range all {
		if id == -1 && len(all) == 1 { // written by some programs where there is none
			return nil, nil
		}
		if id < 0 || id > math.MaxInt32 {
			return nil, fmt.Errorf("the id %d is outside 0..%d", id, math.MaxInt32)
		}
		ids = append(ids, int32(id))
	}
	return slices.Clip(ids), nil
}

func absent(value json.RawMessage) bool {
	return len(value) == 0 || bytes.Equal(value, []byte("null"))
}
