package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

func parseIDs(data json.RawMessage) ([]int32, error) {
	var ids []int64
	if err := json.Unmarshal(data, &ids); err != nil {
		return nil, fmt.Errorf("ids has the impossible value %s", clip(data))
	}
	out := make([]int32, len(ids))
	for i, id := range ids {
		if id < 0 || id > math.MaxInt32 {
			return nil, fmt.Errorf("impossible id %d", id)
		}
		out[i] = int32(id)
	}
	return out, nil
}

// postKeys are the settings of each post-processor. trim_offsets and add_prefix_space are about offsets; pair is for
// two texts together.
var postKeys = map[string][]string{
	"ByteLevel":          {"add_prefix_space", "trim_offsets", "use_regex"},
	"TemplateProcessing": {"single", "pair", "special_tokens"},
	"RobertaProcessing":  {"cls", "sep", "trim_offsets", "add_prefix_space"},
	"BertProcessing":     {"cls", "sep"},
}

func parsePost(data json.RawMessage, depth int) ([]postPart, error) {
	if len(data) == 0 || string(data) == "null" {
		return nil, nil
	}
	s, kind, err := typed(data)
	if err != nil {
		return nil, err
	}
	if err := checked(postKeys, s, kind); err != nil {
		return nil, err
	}
	switch kind {
	case "ByteLevel": // places in the text alone
		return nil, nil
	case "TemplateProcessing":
		parts, err := parseTemplate(s)
		if err != nil {
			return nil, within("TemplateProcessing", err)
		}
		return parts, nil
	case "RobertaProcessing", "BertProcessing":
		ids := make([]postPart, 2)
		for i, name := range []string{"cls", "sep"} {
			var pair []json.RawMessage
			if err := s.into(name, &pair); err != nil || len(pair) != 2 {
				return nil, fmt.Errorf("%s: %s is %s", kind, name, clip(s[name]))
			}
			if ids[i].ids, err = parseIDs(slices.Concat([]byte("["), pair[1], []byte("]"))); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", kind, name, err)
			}
		}
		return []postPart{ids[0], {text: true}, ids[1]}, nil
	case "Sequence":
		all, err := s.elements("processors", depth)
		if err != nil {
			return nil, err
		}
		var out []postPart
		for i, e := range all {
			parts, err := parsePost(e, depth+1)
			if err != nil {
				return nil, within(fmt.Sprintf("Sequence: part %d", i), err)
			}
			if out != nil && parts != nil {
				return nil, fmt.Errorf("%w: two parts of a Sequence add tokens", ErrUnsupported)
			}
			if parts != nil {
				out = parts
			}
		}
		return out, nil
	}
	return nil, unknown(kind)
}

func parseTemplate(s settings) ([]postPart, error) {
	var single []struct {
		SpecialToken *struct{ ID string }
		Sequence     *struct{ ID string }
	}
	var tokens map[string]struct{ IDs json.RawMessage }
	if err := errors.Join(s.into("single", &single), s.into("special_tokens", &tokens)); err != nil {
		return nil, err
	}
	if len(single) > maxSteps {
		return nil, fmt.Errorf("%w: unsupported template of %d pieces", ErrUnsupported, len(single))
	}
	out := []postPart{}
	for i, p := range single {
		switch {
		case p.Sequence != nil && p.Sequence.ID == "A":
			out = append(out, postPart{text: true})
		case p.SpecialToken != nil:
			token, ok := tokens[p.SpecialToken.ID]
			if !ok {
				return nil, fmt.Errorf("special_tokens does not contain %s", quote(p.SpecialToken.ID))
			}
			ids, err := parseIDs(token.IDs)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", quote(p.SpecialToken.ID), err)
			}
			out = append(out, postPart{ids: ids})
		default:
			return nil, fmt.Errorf("piece %d of single is neither the sequence A nor a special token", i)
		}
	}
	return out, nil
}
