package ggufmodel

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// settings are the keys of a config.json that were not used yet. Reading one uses it, so that what is left
// is what a GGUF file has no place for.
type settings struct {
	where   string // for messages
	members map[string]json.RawMessage
	err     error // the first
}

func readSettings(where string, text []byte) (*settings, error) {
	s := &settings{where: where, members: make(map[string]json.RawMessage)}
	dec, err := strictjson.NewDecoder(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	err = strictjson.Object(dec, func(key string) error {
		var v json.RawMessage
		err := dec.Decode(&v)
		s.members[key] = v
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	return s, nil
}

// take returns a key's value and uses it; false: it is missing or null.
func (s *settings) take(key string) (json.RawMessage, bool) {
	v, ok := s.members[key]
	delete(s.members, key)
	return v, ok && string(v) != "null"
}

// get reads a key, or returns another value if it is missing or null.
func get[T any](s *settings, key string, otherwise T) T {
	v, ok := s.take(key)
	if !ok {
		return otherwise
	}
	var out T
	if err := json.Unmarshal(v, &out); err != nil {
		s.fail("%s is %s, which is not a %T", key, strictjson.Quote(string(v)), out)
		return otherwise
	}
	return out
}

// object reads a key that is an object; nil: it is missing or null.
func (s *settings) object(key string) *settings {
	v, ok := s.take(key)
	if !ok {
		return nil
	}
	o, err := readSettings(s.where+": "+key, v)
	if err != nil {
		s.fail("%w", err)
		return nil
	}
	return o
}

// ignore uses keys that do not change what a model computes.
func (s *settings) ignore(keys ...string) {
	for _, key := range keys {
		delete(s.members, key)
	}
}

func (s *settings) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(s.where+": "+format, args...)
	}
}

// refuse is fail for something that GGUF or llama.cpp has no place for.
func (s *settings) refuse(format string, args ...any) {
	s.fail("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...))
}

// rest refuses the keys that were not used, unless their value is empty.
func (s *settings) rest(arch string) {
	for _, key := range slices.Sorted(maps.Keys(s.members)) {
		switch v := string(s.members[key]); v {
		case `null`, `false`, `0`, `0.0`, `""`, `[]`, `{}`:
		default:
			s.refuse("%s is %s, for which llama.cpp's %s has no key", key, strictjson.Quote(strings.TrimSpace(v)), arch)
		}
	}
}
