package hf

import (
	"encoding/json"
	"errors"
	"fmt"
)

// vocabulary has the tokens of a model.
type vocabulary struct {
	ids    map[string]int32
	tokens []string // by id; "" beside a false in has
	has    []bool
	size   int // how many the file lists; added tokens get the ids from there on
}

// parseVocab reports whether each id has one token.
func (v *vocabulary) parseVocab(data json.RawMessage) (unique bool, err error) {
	if err := json.Unmarshal(data, &v.ids); err != nil || v.ids == nil {
		if tooLarge := (*json.UnmarshalTypeError)(nil); errors.As(err, &tooLarge) {
			return false, fmt.Errorf("vocab: an id is not an integer: %s", tooLarge.Value)
		}
		return false, fmt.Errorf("vocab has the impossible value %s", clip(data))
	}
	top := int32(-1)
	// A small file must not make a large table.
	most := int32(min(maxTokens, sparseTokens+16*len(v.ids)))
	for name, id := range v.ids {
		if id < 0 || id >= most {
			return false, fmt.Errorf("vocab: the id %d of %s is outside 0 to %d, the range for %d tokens", id, quote(name), most-1,
				len(v.ids))
		}
		top = max(top, id)
	}
	v.tokens, v.has = make([]string, top+1), make([]bool, top+1)
	v.size, unique = len(v.ids), true
	for name, id := range v.ids {
		if v.has[id] {
			unique = false
			if v.tokens[id] > name { // the library decodes one of them at random
				continue
			}
		}
		v.tokens[id], v.has[id] = name, true
	}
	return unique, nil
}
