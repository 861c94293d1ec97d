package chat

import (
	"bytes"
	"encoding/json"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// fields are the members of a JSON object, in their order.
type fields []field

type field struct {
	key   string
	value json.RawMessage
}

func readFields(raw json.RawMessage) (all fields, err error) {
	dec, err := strictjson.NewDecoder(raw)
	if err != nil {
		return nil, err
	}
	err = strictjson.Object(dec, func(key string) error {
		f := field{key: key}
		err := dec.Decode(&f.value)
		all = append(all, f)
		return err
	})
	return all, err
}

func (all fields) object() json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(asJSON(f.key))
		b.WriteByte(':')
		b.Write(f.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// asJSON is a text as JSON, which has one for every text.
func asJSON(text string) json.RawMessage {
	b, _ := json.Marshal(text)
	return b
}

// nested are the members of a message whose objects have members of their own that may be null for
// not being there, and which of these have such members again. What a call is given and what a tool
// answers is data, whose nulls stay.
var nested = map[string]bool{"content": true, "tool_calls": true, "function": true, "function_call": true}

// withoutNulls leaves null members out of the objects in a member of a message.
func withoutNulls(key string, value json.RawMessage) (json.RawMessage, error) {
	if !nested[key] || !bytes.Contains(value, []byte("null")) {
		return value, nil
	}
	switch bytes.TrimLeft(value, " \t\r\n")[0] {
	case '[':
		var list []json.RawMessage
		if err := json.Unmarshal(value, &list); err != nil {
			return nil, err
		}
		var err error
		for i, v := range list {
			if list[i], err = withoutNulls(key, v); err != nil {
				return nil, err
			}
		}
		return json.Marshal(list)
	case '{':
		all, err := readFields(value)
		if err != nil {
			return nil, err
		}
		kept := all[:0]
		for _, f := range all {
			if string(f.value) == "null" {
				continue
			}
			if f.value, err = withoutNulls(f.key, f.value); err != nil {
				return nil, err
			}
			kept = append(kept, f)
		}
		return kept.object(), nil
	}
	return value, nil
}

// with is a message with a mark in place of its content; last says that nothing else of it is written after
// that.
func (m Message) with(mark string) (marked Message, last bool) {
	return m.edit(func(json.RawMessage) (json.RawMessage, bool) { return asJSON(mark), true })
}

// marked is a message with a mark at the end of its content; last is false if it has none to which one could be
// added, or more of it is written after that.
func (m Message) marked() (marked Message, last bool) {
	return m.edit(markedContent)
}

func (m Message) edit(content func(json.RawMessage) (json.RawMessage, bool)) (edited Message, last bool) {
	if m.Raw == nil {
		made, ok := content(asJSON(m.Content))
		return Message{Role: m.Role, Content: textOf(made)}, ok
	}
	all, err := readFields(m.Raw)
	if err != nil {
		return m, false
	}
	found, calls := false, false
	for i, f := range all {
		switch f.key {
		case "content":
			all[i].value, found = content(f.value)
		case "tool_calls", "function_call":
			calls = calls || string(f.value) != "null" && string(f.value) != "[]"
		}
	}
	m.Raw = all.object()
	return m, found && !calls
}

func textOf(value json.RawMessage) (text string) {
	_ = json.Unmarshal(value, &text) // which it is
	return text
}

// markedContent adds a mark to a text, or to the last part of a list of parts.
func markedContent(value json.RawMessage) (json.RawMessage, bool) {
	var text string
	if json.Unmarshal(value, &text) == nil && string(value) != "null" {
		return asJSON(text + mark), true
	}
	var parts []json.RawMessage
	if json.Unmarshal(value, &parts) != nil || len(parts) == 0 {
		return value, false
	}
	last := &parts[len(parts)-1]
	part, err := readFields(*last)
	if err != nil {
		return value, false
	}
	found := false
	for i, f := range part {
		if f.key == "text" {
			part[i].value, found = markedContent(f.value)
		}
	}
	*last = part.object()
	all, err := json.Marshal(parts)
	return all, found && err == nil
}
