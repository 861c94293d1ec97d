package stages

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// outerModel is a published model for several kinds of data of which a family is the text part. Its
// config.json has the keys of the text part in text_config.
type outerModel struct {
	model string   // model_type
	class string   // of transformers
	keys  []string // that say nothing about the text part
	parts []string // beginnings of the names of the other parts' tensors
	// untied says that a missing tie_word_embeddings means false.
	untied bool
}

// outerOf returns the family and the model around it that a config.json describes, or nil.
func outerOf(members []member) *decoder {
	for _, f := range languages() {
		if d, ok := f.(*decoder); ok && d.outer.model != "" && slices.ContainsFunc(members, func(m member) bool {
			return m.key == "model_type" && same(m.value, `"`+d.outer.model+`"`)
		}) {
			return d
		}
	}
	return nil
}

// textMembers returns the keys of the text part if a config.json describes a model with others, too.
func textMembers(members []member) ([]member, error) {
	f := outerOf(members)
	if f == nil {
		return members, nil
	}
	var text []member
	tie := json.RawMessage(strconv.FormatBool(!f.outer.untied)) // of the whole model: the default of transformers
	for _, m := range members {
		var err error
		switch {
		case m.key == "architectures":
			err = only(`null`, `[]`, `["`+f.outer.class+`"]`)(m.key, m.value)
		case m.key == "tie_word_embeddings":
			tie = m.value
		case m.key == "text_config":
			if text, err = membersOf(m.value); err != nil {
				err = fmt.Errorf("%s: %w", m.key, err)
			}
		case m.key == "quantization_config":
			err = only(`null`)(m.key, m.value)
		case slices.Contains(neutralKeys, m.key) || slices.Contains(f.outer.keys, m.key) || string(m.value) == "null":
		default:
			err = fmt.Errorf("%s is %s, but Troupe does not know this key of %s. Remove it if it does not change what the text part computes",
				m.key, show(m.value), f.outer.model)
		}
		if err != nil {
			return nil, err
		}
	}
	if text == nil {
		return nil, errors.New("text_config is missing")
	}
	own := []member{{"model_type", json.RawMessage(`"` + f.model + `"`)}, {"tie_word_embeddings", tie}}
	for _, m := range text {
		if i := slices.IndexFunc(own, func(o member) bool { return o.key == m.key }); i < 0 {
			own = append(own, m)
		} else if !same(m.value, string(own[i].value)) {
			return nil, fmt.Errorf("text_config.%s is %s, but %s needs %s", m.key, show(m.value), f.outer.model, show(own[i].value))
		}
	}
	return own, nil
}

// OtherParts describes a model of several kinds of data, such as images and text, of which Troupe
// has the text part.
type OtherParts struct {
	Model    string // its model_type
	prefixes []string
}

// Has reports whether a tensor belongs to another part than the text's.
func (o OtherParts) Has(tensor string) bool {
	tensor = strings.TrimPrefix(tensor, "model.")
	return slices.ContainsFunc(o.prefixes, func(p string) bool { return strings.HasPrefix(tensor, p) })
}

// OtherPartsOf returns the other parts of the model that a config.json describes; Model is empty if
// there are none.
func OtherPartsOf(configJSON []byte) OtherParts {
	members, err := membersOf(configJSON)
	if err != nil {
		return OtherParts{}
	}
	if f := outerOf(members); f != nil {
		return OtherParts{f.outer.model, f.outer.parts}
	}
	return OtherParts{}
}
