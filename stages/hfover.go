package stages

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// HFOver is HF for weights that are stored in a type of torch's, such as "float32". Where the
// model is the one that another config.json describes, it is that one with its own keys: only
// the type is changed.
func (c Config) HFOver(original []byte, dtype string) ([]byte, error) {
	own, err := c.HF()
	if err != nil || !c.Language() {
		return own, err
	}
	from := own
	if was, err := ParseHF(original); err == nil {
		// Dropout is the run's, and no part of the model; so is the context.
		was.Dropout, was.MTPWeight, was.Context, was.MaxPositions = c.Dropout, c.MTPWeight, c.Positions(), 0
		if text, err := was.HF(); err == nil && bytes.Equal(text, own) {
			from = original
		}
	}
	members, err := membersOf(from)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	said, value := false, json.RawMessage(strconv.Quote(dtype))
	add := func(key string, v json.RawMessage) error {
		name, err := json.Marshal(key)
		if err == nil {
			out.WriteByte("{,"[min(out.Len(), 1)])
			out.Write(name)
			out.WriteByte(':')
			out.Write(v)
		}
		return err
	}
	for _, m := range members {
		if m.key == "torch_dtype" || m.key == "dtype" {
			m.value, said = value, true
		}
		if err := add(m.key, m.value); err != nil {
			return nil, err
		}
	}
	if !said {
		if err := add("torch_dtype", value); err != nil {
			return nil, err
		}
	}
	out.WriteByte('}')
	var text bytes.Buffer
	if err := json.Indent(&text, out.Bytes(), "", "  "); err != nil {
		return nil, err
	}
	text.WriteByte('\n')
	return text.Bytes(), nil
}
