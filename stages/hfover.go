package stages

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// HFOver is HF for weights stored in one of torch's types, such as "float32". If original, another
// config.json, describes the same model and no other parts, the result keeps all of its keys, except that of
// quantized weights, and changes only the type.
func (c Config) HFOver(original []byte, dtype string) ([]byte, error) {
	own, err := c.HF()
	if err != nil || !c.Language() {
		return own, err
	}
	from := own
	if was, err := ParseHF(original); err == nil && OtherPartsOf(original).Model == "" {
		// Dropout and the context are settings of the run, not of the model.
		was.Dropout, was.MTPWeight, was.Context, was.MaxPositions = c.Dropout, c.MTPWeight, c.Positions(), 0
		was.Experts.AuxLossWeight, was.Experts.Balance = c.Experts.AuxLossWeight, c.Experts.Balance
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
		if m.key == quantizationKey { // the weights are written as numbers
			continue
		}
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
