package hf

import (
	"encoding/json"
	"fmt"
	"slices"
)

// parseAdded reads the added tokens. As in the library, a token that is in the vocabulary gets its
// id, and others get the next free ids, whatever the file says.
func (t *Tokenizer) parseAdded(data json.RawMessage) error {
	var all []settings
	if len(data) > 0 {
		if err := json.Unmarshal(data, &all); err != nil {
			return fmt.Errorf("found %s: %w", clip(data), err)
		}
	}
	type entry struct {
		added
		normalized bool
	}
	byID := make(map[int32]entry)
	next := int64(t.size)
	for i, s := range all {
		if !s.has("content") {
			return fmt.Errorf("token %d has no content", i)
		}
		var e entry
		if err := s.only("id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"); err != nil {
			return fmt.Errorf("token %d: %w", i, err)
		}
		for name, into := range map[string]any{"content": &e.content, "single_word": &e.singleWord, "lstrip": &e.lstrip, "rstrip": &e.rstrip,
			"special": &e.special, "normalized": &e.normalized} {
			if err := s.into(name, into); err != nil {
				return fmt.Errorf("token %d: %w", i, err)
			}
		}
		content := e.content
		if content == "" {
			continue
		}
		id, ok := t.TokenID(content)
		if !ok {
			if next >= maxTokens {
				return fmt.Errorf("token %d gets the id %d; the limit is %d", i, next, maxTokens-1)
			}
			id = int32(next)
			next++
		}
		e.id = id
		t.byName[content] = id
		t.special[content] = t.special[content] || e.special
		byID[id] = e
		t.vocab = max(t.vocab, int(id)+1)
	}
	ids := make([]int32, 0, len(byID))
	for id := range byID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	w := &work{}
	for _, id := range ids {
		e := byID[id]
		name := e.content
		find := &t.raw
		if e.normalized {
			find = &t.normal
			name = string(t.normalize(w, []byte(name)))
			if w.err != nil {
				return w.err
			}
		}
		t.names[id] = name
		// By its name, as it is decoded and as it was written, it may be special or not.
		e.special = t.special[e.content]
		e.content = name
		if err := find.add(e.added); err != nil {
			return fmt.Errorf("the token %s: %w", quote(name), err)
		}
	}
	for name, special := range t.special {
		if !special {
			delete(t.special, name)
		}
	}
	return nil
}
