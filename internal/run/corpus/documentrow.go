package corpus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// row has the members of a line's object.
type row struct {
	members map[string]json.RawMessage
	names   map[string]string // of keys in the data: see config.DocumentFields
}

func readRow(line []byte, names map[string]string) (row, error) {
	m := row{make(map[string]json.RawMessage), names}
	dec, err := strictjson.NewDecoder(line)
	if err == nil && bytes.HasPrefix(bytes.TrimSpace(line), []byte("[")) {
		err = errors.New("the line is a JSON array, but each line must be an object; to convert an array: jq -c '.[]' FILE > FILE.jsonl")
	}
	if err == nil {
		err = strictjson.Object(dec, func(key string) error {
			var v json.RawMessage
			err := dec.Decode(&v)
			m.members[key] = v
			return err
		})
	}
	if err == nil {
		err = strictjson.End(dec)
	}
	return m, err
}

// name returns the name of a key in the data.
func (m row) name(key string) string {
	if name := m.names[key]; name != "" {
		return name
	}
	return key
}

// value returns the value of a key; nil: there is none.
func (m row) value(key string) json.RawMessage { return m.members[m.name(key)] }

// has reports whether the row has a member that is not null.
func (m row) has(key string) bool { v := m.value(key); return v != nil && string(v) != "null" }

func (m row) isList(key string) bool { return bytes.HasPrefix(m.value(key), []byte("[")) }

func (m row) text(key string) (s string, err error) {
	if json.Unmarshal(m.value(key), &s) != nil {
		err = fmt.Errorf("%q is %s, but must be a string", m.name(key), strictjson.Show(m.value(key)))
	}
	return s, err
}

// textOr is text for a key that may be missing.
func (m row) textOr(key string) (string, error) {
	if !m.has(key) {
		return "", nil
	}
	return m.text(key)
}

// CheckRow checks without a tokenizer that a line is a document: that it has the keys of one, and readable messages.
func CheckRow(line []byte) error {
	m, err := readRow(line, nil)
	if err != nil {
		return err
	}
	if messages, ok := conversationOf(m); ok {
		_, err = messages()
		return err
	}
	if m.has("text") || m.has("prompt") && m.has("completion") {
		return nil
	}
	return m.unknown()
}

// found lists the keys of a row.
func (m row) found() string {
	keys := make([]string, 0, len(m.members))
	for key, v := range m.members {
		name := strictjson.Quote(key)
		if string(v) == "null" {
			name += " (null)"
		}
		keys = append(keys, name)
	}
	slices.Sort(keys)
	if len(keys) == 0 {
		return "no keys"
	}
	return strings.Join(keys[:min(len(keys), 5)], ", ")
}

// unknown is the error about a row of no known kind.
func (m row) unknown() error {
	hint := "data.fields names keys that are called otherwise"
	if m.has("chosen") && m.has("rejected") {
		hint = "only a run with preference.loss learns from \"chosen\" and \"rejected\""
	}
	return fmt.Errorf("the object has %s, but needs \"text\", \"prompt\" and \"completion\", \"messages\", \"conversations\", "+
		"or \"instruction\" and \"output\"; %s", m.found(), hint)
}
