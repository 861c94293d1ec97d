package corpus

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/chat"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

// documentReader turns lines into documents. It is safe for concurrent use.
type documentReader struct {
	*Text
	names map[string]string // of keys: see config.DocumentFields
	loss  string            // preference.loss: lines have answers; "": they have documents
	hint  string            // follows errors about a row
	mu    sync.Mutex
	seen  noted
}

// vocab is above each id of a document: a model's config.json may end texts with an id that its tokenizer lacks.
func (r *documentReader) vocab() int {
	n := r.tok.Vocab()
	for _, ids := range [][]int32{r.Talk.Ends, r.Talk.End, r.Talk.Before, r.Talk.After} {
		for _, id := range ids {
			n = max(n, int(id)+1)
		}
	}
	return n
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

// newDocumentReader returns a reader. special is data.special_tokens, and fields is data.fields.
func newDocumentReader(tok tokenizer.Tokenizer, talk rundir.Talk, special string, fields []string) (*documentReader, error) {
	text := NewText(tok, talk, special)
	names, err := config.DocumentFields(fields)
	return &documentReader{Text: text, names: names}, errors.Join(text.bad, err)
}

// decides is all that decides the ids of a document, except its text and the tokenizer.
func (r *documentReader) decides() any {
	special := make([]string, 0, 2*len(r.Talk.Special)) // that there are none is one thing, not two
	for _, name := range slices.Sorted(maps.Keys(r.Talk.Special)) {
		special = append(special, name, r.Talk.Special[name])
	}
	ids := func(ids []int32) []int32 { return append([]int32{}, ids...) }
	all := []any{"documents, encoded whole", r.plain, r.Talk.Template, special, ids(r.Talk.Ends), ids(r.Talk.End), ids(r.Talk.Before),
		ids(r.Talk.After), r.names}
	if r.loss != "" {
		all = append(all, "answers", r.loss == stages.KTO)
	}
	return all
}

// columns are the columns of tables that documents can have.
func (r *documentReader) columns() []string {
	all := make([]string, 0, len(config.DocumentKeys))
	keys := config.DocumentKeys
	if r.loss != "" {
		keys = slices.Concat(keys, config.AnswerKeys)
	}
	for _, key := range keys {
		all = append(all, cmp.Or(r.names[key], key))
	}
	return append(all, "history") // it is refused
}

// perLine is the number of documents of a line.
func (r *documentReader) perLine() int {
	if r.loss != "" && r.loss != stages.KTO {
		return 2
	}
	return 1
}

// readInto turns a line into its documents.
func (r *documentReader) readInto(to []data.Document, line []byte) (err error) {
	if r.loss != "" {
		return r.readAnswers(to, line)
	}
	to[0], err = r.read(line)
	return err
}

// read turns a line into a document.
func (r *documentReader) read(line []byte) (data.Document, error) {
	m, err := readRow(line, r.names)
	if err != nil {
		return data.Document{}, err
	}
	if messages, ok := conversationOf(m); ok {
		return r.conversation(m, messages)
	}
	switch {
	case m.has("prompt") && m.has("completion"):
		prompt, err := m.text("prompt")
		completion, err2 := m.text("completion")
		if err := errors.Join(err, err2); err != nil {
			return data.Document{}, err
		}
		return r.pair(prompt, completion)
	case m.has("text"):
		return r.text(m)
	}
	return data.Document{}, m.unknown()
}

// conversationOf returns the function that reads the messages of a conversation; false: the row is none.
func conversationOf(m row) (messages func() ([]chat.Message, error), ok bool) {
	switch both := m.has("prompt") && m.has("completion"); {
	case m.has("messages"):
		return m.messages, true
	case m.has("conversations"):
		return m.shareGPT, true
	case both && (m.isList("prompt") || m.isList("completion")):
		return m.promptMessages, true
	case !both && !m.has("text") && m.has("instruction") && m.has("output"):
		return m.alpaca, true
	}
	return nil, false
}

// text encodes a document that is a text.
func (r *documentReader) text(m row) (d data.Document, err error) {
	s, err := m.text("text")
	if err != nil {
		return d, err
	}
	ids, err := r.Encode(s)
	if err != nil {
		return d, err
	}
	r.count(s, ids)
	ids = r.ended(ids)
	learned := slices.Repeat([]bool{true}, len(ids))
	if r.begins(ids) {
		clear(learned[:len(r.Talk.Before)])
	}
	return data.Document{Text: true, IDs: ids, Learn: learned}, nil
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
