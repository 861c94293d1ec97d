package corpus

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/internal/chat"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// documentReader turns lines into documents. It is safe for concurrent use.
type documentReader struct {
	*Text
	mu   sync.Mutex
	seen noted
}

// noted counts what documents have that a person may want to know.
type noted struct {
	names   int           // of special tokens in texts, prompts and completions
	answers int           // in conversations
	ends    map[int32]int // answers by the token that ends them
}

func (n *noted) add(o noted) {
	n.names += o.names
	n.answers += o.answers
	if n.ends == nil {
		n.ends = make(map[int32]int)
	}
	for id, count := range o.ends {
		n.ends[id] += count
	}
}

func newDocumentReader(tok tokenizer.Tokenizer, talk rundir.Talk, special string) (*documentReader, error) {
	text := NewText(tok, talk, special)
	return &documentReader{Text: text}, text.bad
}

// decides is all that decides the ids of a document, except its text and the tokenizer.
func (r *documentReader) decides() any {
	special := make([]string, 0, 2*len(r.Talk.Special)) // that there are none is one thing, not two
	for _, name := range slices.Sorted(maps.Keys(r.Talk.Special)) {
		special = append(special, name, r.Talk.Special[name])
	}
	ids := func(ids []int32) []int32 { return append([]int32{}, ids...) }
	return []any{"documents, encoded whole", r.plain, r.Talk.Template, special, ids(r.Talk.Ends), ids(r.Talk.End), ids(r.Talk.Before),
		ids(r.Talk.After)}
}

// row has the members of a line's object.
type row map[string]json.RawMessage

func readRow(line []byte) (row, error) {
	members := make(row)
	dec, err := strictjson.NewDecoder(line)
	if err == nil {
		err = strictjson.Object(dec, func(key string) error {
			var v json.RawMessage
			err := dec.Decode(&v)
			members[key] = v
			return err
		})
	}
	if err == nil {
		err = strictjson.End(dec)
	}
	if err != nil {
		return nil, err
	}
	return members, nil
}

// has reports whether the row has a member that is not null.
func (m row) has(key string) bool { v, ok := m[key]; return ok && string(v) != "null" }

func (m row) text(key string) (s string, err error) {
	if json.Unmarshal(m[key], &s) != nil {
		err = fmt.Errorf("%q is %s, but must be a string", key, strictjson.Quote(string(m[key])))
	}
	return s, err
}

// read turns a line into a document.
func (r *documentReader) read(line []byte) (data.Document, error) {
	members, err := readRow(line)
	if err != nil {
		return data.Document{}, err
	}
	switch {
	case members.has("messages"):
		return r.conversation(members["messages"], members["tools"])
	case members.has("prompt") && members.has("completion"):
		prompt, err := members.text("prompt")
		completion, err2 := members.text("completion")
		if err := errors.Join(err, err2); err != nil {
			return data.Document{}, err
		}
		return r.pair(prompt, completion)
	case members.has("text"):
		s, err := members.text("text")
		if err != nil {
			return data.Document{}, err
		}
		ids, err := r.Encode(s)
		if err != nil {
			return data.Document{}, err
		}
		r.count(s, ids)
		ids = r.ended(ids)
		learned := slices.Repeat([]bool{true}, len(ids))
		if r.begins(ids) {
			clear(learned[:len(r.Talk.Before)])
		}
		return data.Document{Text: true, IDs: ids, Learn: learned}, nil
	}
	keys := make([]string, 0, len(members))
	for key := range members {
		name := strictjson.Quote(key)
		if !members.has(key) {
			name += " (null)"
		}
		keys = append(keys, name)
	}
	slices.Sort(keys)
	found := "no keys"
	if len(keys) > 0 {
		found = strings.Join(keys[:min(len(keys), 5)], ", ")
	}
	return data.Document{}, fmt.Errorf("the object has %s, but needs \"text\", or \"prompt\" and \"completion\", or \"messages\"", found)
}

// pair encodes a prompt and its completion as one text. A token with characters of both belongs to
// the completion.
func (r *documentReader) pair(prompt, completion string) (d data.Document, err error) {
	text := prompt + completion
	ids, spans, err := r.tok.EncodeSpans([]byte(text), r.plain)
	if err != nil {
		return d, err
	}
	r.count(text, ids)
	learned := make([]bool, len(ids))
	learn(learned, spans, int32(len(prompt)), int32(len(text)), 0)
	if !r.begins(ids) {
		d.IDs, d.Learn = slices.Clone(r.Talk.Before), make([]bool, len(r.Talk.Before))
	}
	d.IDs, d.Learn = append(d.IDs, ids...), append(d.Learn, learned...)
	n := len(d.IDs)
	d.IDs = r.ended(d.IDs)
	d.Learn = append(d.Learn, slices.Repeat([]bool{true}, len(d.IDs)-n)...)
	return d, nil
}

// count counts the names of special tokens in a text.
func (r *documentReader) count(text string, ids []int32) {
	n := 0
	if r.plain {
		n = r.tok.SpecialNames([]byte(text))
	} else {
		for _, id := range ids {
			if r.tok.IsSpecial(id) {
				n++
			}
		}
		if r.begins(ids) {
			n -= len(r.Talk.Before)
		}
	}
	if n > 0 {
		r.note(noted{names: n})
	}
}

func (r *documentReader) note(n noted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen.add(n)
}

// conversation renders messages with the model's chat template and encodes the text. Names of
// special tokens are tokens, also in the contents of messages, as in transformers.
func (r *documentReader) conversation(messages, tools json.RawMessage) (d data.Document, err error) {
	if r.template == nil {
		return d, fmt.Errorf("the object has messages, but the model has %w", ErrNoTemplate)
	}
	said, err := chat.ParseMessages(messages)
	if err != nil {
		return d, err
	}
	if tools, err = readTools(tools); err != nil {
		return d, err
	}
	text, turns, err := r.template.Turns(said, chat.Options{Special: r.Talk.Special, Tools: tools})
	if err != nil {
		return d, err
	}
	ids, spans, err := r.tok.EncodeSpans([]byte(text), false)
	if err != nil {
		return d, err
	}
	d = data.Document{IDs: ids, Learn: make([]bool, len(ids))}
	found := noted{ends: make(map[int32]int)}
	first := 0
	for _, turn := range turns {
		a := r.answer(text, turn, ids, spans, first)
		first = learn(d.Learn, spans, a.from, a.to, first)
		if found.answers++; a.ends {
			found.ends[a.end]++
		}
	}
	r.note(found)
	return d, nil
}

// readTools reads a list of functions. It also accepts the list as a string, as tables store it.
func readTools(tools json.RawMessage) (json.RawMessage, error) {
	var text string
	if tools == nil || string(tools) == "null" {
		return nil, nil
	}
	if json.Unmarshal(tools, &text) != nil {
		return tools, nil
	}
	if !json.Valid([]byte(text)) {
		return nil, errTools
	}
	if text = strings.TrimSpace(text); text == "null" {
		return nil, nil
	}
	return json.RawMessage(text), nil
}
