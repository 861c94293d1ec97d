package corpus

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/chat"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/stages"
)

// With [preference] a line has a prompt with two answers, "chosen" and "rejected", or for KTO with one, "completion", and its "label".
// The keys are those of TRL. A line becomes two documents, the chosen answer and then the rejected one or, for KTO, the answer and then
// the answer of another line.

// readAnswers turns a line into a document for each of its answers.
func (r *documentReader) readAnswers(to []data.Document, line []byte) error {
	m, err := readRow(line, r.names)
	if err != nil {
		return err
	}
	keys := []string{"chosen", "rejected"}
	if r.loss == stages.KTO {
		keys = []string{"completion"}
		if err := m.needs(r.loss, "prompt", "completion", "label"); err != nil {
			return err
		}
	} else if err := m.needs(r.loss, keys...); err != nil {
		return err
	}
	for i, key := range keys {
		if to[i], err = r.promptWith(m, key); err != nil {
			return err
		}
		if !slices.Contains(to[i].Learn[min(1, len(to[i].Learn)):], true) {
			if len(to[i].Learn) == 1 && to[i].Learn[0] {
				return fmt.Errorf("%q is one token, and no token comes before it, so nothing can be learned; give a %q", m.name(key), m.name("prompt"))
			}
			return fmt.Errorf("%q has no token to learn: it needs a text, or a message of the role \"assistant\"", m.name(key))
		}
	}
	if r.loss == stages.KTO {
		if json.Unmarshal(m.value("label"), &to[0].Good) != nil {
			return fmt.Errorf("%q must be true for a good completion, or false", m.name("label"))
		}
		return nil
	}
	if slices.Equal(to[0].IDs, to[1].IDs) {
		return fmt.Errorf("%q and %q are equal, so nothing can be learned from them; remove the line", m.name("chosen"), m.name("rejected"))
	}
	return nil
}

// needs returns an error about the first of some keys that a row does not have.
func (m row) needs(loss string, keys ...string) error {
	for _, key := range keys {
		if !m.has(key) {
			return fmt.Errorf("the object has %s, but preference.loss = %q also needs %q; data.fields names keys that are called otherwise",
				m.found(), loss, m.name(key))
		}
	}
	return nil
}

// promptWith encodes the prompt with an answer, of which only the answer is learned.
func (r *documentReader) promptWith(m row, key string) (d data.Document, err error) {
	switch {
	case m.isList("prompt") || r.loss == stages.KTO && m.isList(key):
		return r.conversation(m, func() ([]chat.Message, error) { return m.said(key, m.promptAnd) })
	case m.isList(key):
		return r.conversation(m, func() ([]chat.Message, error) { return m.said(key, m.afterShared) })
	case !m.has("prompt"):
		return d, fmt.Errorf("there is no %q; only answers that are lists of messages may begin with it", m.name("prompt"))
	}
	prompt, err := m.text("prompt")
	text, err2 := m.text(key)
	if err := errors.Join(err, err2); err != nil {
		return d, err
	}
	if strings.TrimSpace(text) == "" {
		return d, fmt.Errorf("%q is empty", m.name(key))
	}
	return r.pair(prompt, text)
}

// said reads the messages of a prompt and an answer, which must say something.
func (m row) said(key string, read func(key string) ([]chat.Message, error)) ([]chat.Message, error) {
	said, err := read(key)
	if err == nil && !slices.ContainsFunc(said, func(s chat.Message) bool {
		return !s.Skip && (s.Raw != nil || strings.TrimSpace(s.Content) != "")
	}) {
		err = fmt.Errorf("%q is empty", m.name(key))
	}
	return said, err
}

// afterShared reads one of two conversations without a list of messages as the prompt: the messages that both begin with are the prompt.
// A prompt that is a text must be one of them.
func (m row) afterShared(key string) ([]chat.Message, error) {
	var both [2][]chat.Message
	for i, k := range []string{"chosen", "rejected"} {
		if !m.isList(k) {
			return nil, fmt.Errorf("%q must be a list of messages, because the other one of chosen and rejected is", m.name(k))
		}
		var err error
		if both[i], err = m.messagesOf(k); err != nil {
			return nil, fmt.Errorf("%q: %w", m.name(k), err)
		}
	}
	said := both[0]
	if key == "rejected" {
		said = both[1]
	}
	prompt, err := m.textOr("prompt")
	if err != nil {
		return nil, err
	}
	found := prompt == ""
	for i := 0; i < min(len(both[0]), len(both[1]))-1 && reflect.DeepEqual(both[0][i], both[1][i]); i++ {
		found = found || said[i].Content == prompt
		said[i].Skip = true
	}
	if !found {
		return nil, fmt.Errorf("%q is a text, but the answers are messages that do not begin with it; make it a list of messages",
			m.name("prompt"))
	}
	return said, nil
}

// withOthersAnswers puts after each document its prompt with the answer of the document before, from which KTO estimates the KL
// divergence. TRL pairs the lines of a batch in the same way.
func withOthersAnswers(docs []data.Document) ([]data.Document, error) {
	if len(docs) < 2 {
		return nil, fmt.Errorf("%w: preference.loss = %q needs at least 2 lines, because it compares answers with those to other prompts",
			data.ErrTooShort, stages.KTO)
	}
	all := make([]data.Document, 0, 2*len(docs))
	for i, d := range docs {
		before := docs[(i+len(docs)-1)%len(docs)]
		prompt, answer := firstTarget(d), firstTarget(before)
		other := d
		other.IDs = slices.Concat(d.IDs[:prompt], before.IDs[answer:])
		other.Learn = slices.Concat(d.Learn[:prompt], before.Learn[answer:])
		all = append(all, d, other)
	}
	return all, nil
}

// firstTarget returns the number of ids before the first one that is learned.
func firstTarget(d data.Document) int { return 1 + slices.Index(d.Learn[1:], true) }

// splitAnswers is splitDocuments for pairs of documents.
func splitAnswers(docs *data.Documents, valFraction float64) (train, val *data.Documents, err error) {
	pairs, err := data.SplitDocuments(docs.Len()/2, valFraction)
	if err != nil {
		return nil, nil, err
	}
	is := make([]bool, docs.Len())
	for i := range is {
		is[i] = pairs[i/2]
	}
	train, val = docs.Part(is)
	return train, val, nil
}

// fitAnswers is fit for pairs of documents. Every one becomes a record. differ: both of a pair must not be the same.
func fitAnswers(docs *data.Documents, context int, tooLong string, differ bool) (r *data.Records, c DocumentCounts, err error) {
	r, c = data.NewRecords(docs), DocumentCounts{Total: docs.Len()}
	most := context + 1
	alike := alikePairs{context: context}
	for i := range docs.Len() {
		n, first := docs.IDs(i), docs.FirstTarget(i)
		file, row := docs.Place(i)
		where := fmt.Sprintf("%s, row %d", data.Plain(file), row)
		switch c.Longest = max(c.Longest, n); {
		case n > most && first >= most:
			return nil, c, fmt.Errorf("%s: the prompt alone has %s, but the context is %d; raise model.context, or remove the line", where,
				words.Plural(first, "token"), context)
		case n > most && tooLong == "refuse":
			return nil, c, fmt.Errorf("%s: the prompt with an answer has %d tokens, but the limit is %d for a context of %d; "+
				"raise model.context, or set data.too_long = \"cut\"", where, n, most, context)
		}
		all := docs.Targets(i, n)
		if n > most {
			n = most
			c.Cut++
		}
		kept := docs.Targets(i, n)
		c.Learned, c.TargetsLeftOut, c.Tokens = c.Learned+kept, c.TargetsLeftOut+all-kept, c.Tokens+int64(n)
		r.Add(i, n)
		if !differ || i%2 == 0 || docs.IDs(i) <= most && docs.IDs(i-1) <= most { // answers that are not cut differ
			continue
		}
		same, err := sameRecords(r, i-1, i)
		if err != nil {
			return nil, c, err
		}
		if same {
			alike.add(where)
		}
	}
	if err := alike.err(); err != nil {
		return nil, c, err
	}
	return r, c, nil
}

// alikePairs are the pairs of answers that are the same where they are cut.
type alikePairs struct {
	context, n int
	first      []string // places of the first few
}

func (a *alikePairs) add(where string) {
	const most = 5
	if a.n++; a.n <= most {
		a.first = append(a.first, where)
	}
}

func (a *alikePairs) err() error {
	context := words.Plural(a.context, "token")
	switch a.n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s: the answers differ only after the context of %s, where they are cut; raise model.context, or remove the line",
			a.first[0], context)
	}
	text := strings.Join(a.first, "; ")
	if more := a.n - len(a.first); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return fmt.Errorf("the answers of %d lines differ only after the context of %s, where they are cut: %s; raise model.context, "+
		"or remove the lines", a.n, context, text)
}

// sameRecords reports whether two records are the same.
func sameRecords(r *data.Records, i, j int) (bool, error) {
	n := r.Positions(i)
	if n != r.Positions(j) {
		return false, nil
	}
	ids := make([]int32, 4*n)
	if err := errors.Join(r.Fill(i, ids[:n], ids[n:2*n]), r.Fill(j, ids[2*n:3*n], ids[3*n:])); err != nil {
		return false, err
	}
	return slices.Equal(ids[:2*n], ids[2*n:]), nil
}
