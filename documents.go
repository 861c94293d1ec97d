package troupe

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/troupe-ml/troupe/chat"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/data"
	"github.com/troupe-ml/troupe/internal/rundir"
	"github.com/troupe-ml/troupe/internal/strictjson"
	"github.com/troupe-ml/troupe/tokenizer"
)

// Documents are JSON lines: {"text"}, {"prompt", "completion"} or {"messages"}. Where all are texts
// they are joined, each ended by the model's end token, and trained on in windows as any text. Else
// each is a sequence of its own, of which completions, and what the assistant says, are learned.

// documentReader turns lines into documents. It is safe for concurrent use.
type documentReader struct {
	tok      tokenizer.Tokenizer
	talk     rundir.Talk
	template *chat.Template // nil: there is none
	ends     []string       // texts that end a turn
	prefix   []int32        // that the tokenizer begins a text with
	end      []int32        // that ends a document: the tokenizer's eos_token, else the model's; none: nothing
}

func newDocumentReader(tok tokenizer.Tokenizer, talk rundir.Talk) (*documentReader, error) {
	r := &documentReader{tok: tok, talk: talk}
	if talk.Template != "" {
		t, err := chat.Parse(talk.Template)
		if err != nil {
			return nil, err
		}
		r.template = t
	}
	for _, id := range talk.Ends {
		if name, ok := tok.Token(id); ok {
			r.ends = append(r.ends, name)
		}
	}
	r.end = talk.Ends[:min(1, len(talk.Ends))]
	if end := talk.Special["eos_token"]; end != "" {
		r.ends = append(r.ends, end)
		if id, ok := tok.TokenID(end); ok {
			r.end = []int32{id}
		}
	}
	// What is added to an empty text: the token that begins one, or nothing. A tokenizer that ends
	// texts too adds more than one.
	if ids, err := tok.EncodeSpecial(nil, true); err == nil && len(ids) == 1 && !slices.Contains(talk.Ends, ids[0]) {
		r.prefix = ids
	}
	return r, nil
}

// decides is all that decides the ids of a document, but its text and the tokenizer.
func (r *documentReader) decides() any {
	special := make([]string, 0, 2*len(r.talk.Special)) // that there are none is one thing, not two
	for _, name := range slices.Sorted(maps.Keys(r.talk.Special)) {
		special = append(special, name, r.talk.Special[name])
	}
	return []any{"documents", r.talk.Template, special, append([]string{}, r.ends...), append([]int32{}, r.prefix...), append([]int32{}, r.end...)}
}

// read turns a line into a document.
func (r *documentReader) read(line []byte) (data.Document, error) {
	members := make(map[string]json.RawMessage)
	dec, err := strictjson.NewDecoder(line)
	if err == nil {
		err = strictjson.Object(dec, func(key string) error {
			var v json.RawMessage
			err := dec.Decode(&v)
			members[key] = v
			return err
		})
	}
	if err != nil {
		return data.Document{}, err
	}
	text := func(key string) (s string, err error) {
		if json.Unmarshal(members[key], &s) != nil || string(members[key]) == "null" {
			err = fmt.Errorf("%q is %s, it must be a text", key, strictjson.Quote(string(members[key])))
		}
		return s, err
	}
	has := func(key string) bool { _, ok := members[key]; return ok }
	switch {
	case has("messages"):
		return r.conversation(members["messages"], members["tools"])
	case has("prompt") && has("completion"):
		prompt, err := text("prompt")
		completion, err2 := text("completion")
		if err := errors.Join(err, err2); err != nil {
			return data.Document{}, err
		}
		d := data.Document{}
		addIDs(&d, r.prefix, false)
		if err := addText(&d, r.tok.Encode, prompt, false); err != nil {
			return d, err
		}
		if err := addText(&d, r.tok.Encode, completion, true); err != nil {
			return d, err
		}
		addIDs(&d, r.end, true)
		return d, nil
	case has("text"):
		s, err := text("text")
		if err != nil {
			return data.Document{}, err
		}
		d := data.Document{Text: true}
		addIDs(&d, r.prefix, false)
		err = addText(&d, r.tok.Encode, s, true)
		addIDs(&d, r.end, true)
		return d, err
	}
	keys := make([]string, 0, len(members))
	for key := range members {
		keys = append(keys, strictjson.Quote(key))
	}
	slices.Sort(keys)
	return data.Document{}, fmt.Errorf("it has neither \"text\", nor \"prompt\" and \"completion\", nor \"messages\", but %s", strings.Join(keys[:min(len(keys), 5)], ", "))
}

// conversation renders messages by the model's chat template.
func (r *documentReader) conversation(messages, tools json.RawMessage) (d data.Document, err error) {
	if r.template == nil {
		return d, fmt.Errorf("it has messages, and the model has no chat template (%s, or chat_template in %s) to make text of them", rundir.TemplateFile, rundir.TokenizerConfigFile)
	}
	said, err := chat.ParseMessages(messages)
	if err != nil {
		return d, err
	}
	pieces, err := r.template.Pieces(said, chat.Options{Special: r.talk.Special, Tools: tools}, r.ends)
	if err != nil {
		return d, err
	}
	special := func(text []byte) ([]int32, error) { return r.tok.EncodeSpecial(text, false) }
	for _, p := range pieces {
		if err := addText(&d, special, p.Text, p.Learn); err != nil {
			return d, err
		}
	}
	return d, nil
}

func addIDs(d *data.Document, ids []int32, learn bool) {
	d.IDs = append(d.IDs, ids...)
	d.Learn = append(d.Learn, slices.Repeat([]bool{learn}, len(ids))...)
}

func addText(d *data.Document, with func([]byte) ([]int32, error), text string, learn bool) error {
	ids, err := with([]byte(text))
	addIDs(d, ids, learn)
	return err
}

// readDocuments reads and encodes all documents of files, on all cores.
func readDocuments(text *data.Text, r *documentReader) ([]data.Document, error) {
	type line struct {
		file string
		row  int
		text []byte
	}
	var lines []line
	if err := text.Lines(func(file string, row int, text []byte) error {
		lines = append(lines, line{file, row, text})
		return nil
	}); err != nil {
		return nil, err
	}
	all, errs := make([]data.Document, len(lines)), make([]error, len(lines))
	var next atomic.Int64
	var failed atomic.Bool
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(lines)) {
		workers.Go(func() {
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= len(lines) {
					return
				}
				if all[i], errs[i] = r.read(lines[i].text); errs[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	workers.Wait()
	for i, err := range errs { // lines are taken in their order: the first fault is among them
		if err != nil {
			return nil, fmt.Errorf("%s, row %d: %w", data.Plain(lines[i].file), lines[i].row, err)
		}
	}
	return all, nil
}

// joined makes one corpus of documents that are texts.
func joined(docs []data.Document) data.Corpus {
	n := 0
	for _, d := range docs {
		n += len(d.IDs)
	}
	ids := make([]int32, 0, n)
	for _, d := range docs {
		ids = append(ids, d.IDs...)
	}
	return data.NewTokens(ids)
}

// loadDocuments reads data.train and data.val, which are documents.
func loadDocuments(cfg *config.Config, tok tokenizer.Tokenizer, talk rundir.Talk, accept acceptFunc, kept *tokenStore) (_ *corpora, err error) {
	if tok == nil {
		tok = tokenizer.Bytes{}
	}
	c := &corpora{tokenizer: tok}
	trainFiles, valFiles, excluded, err := dataFiles(cfg)
	if err != nil {
		return nil, err
	}
	c.excluded = excluded
	r, err := newDocumentReader(tok, talk)
	if err != nil {
		return nil, cfg.Errorf("model.from", "%w", err)
	}
	read := func(key string, files []string, id *data.Identity) ([]data.Document, error) {
		text, err := data.ReadText(files)
		if err != nil {
			return nil, cfg.Errorf(key, "%w", unreadableData(err))
		}
		*id = text.Identity()
		if accept != nil {
			if err := accept(key, *id); err != nil {
				return nil, cfg.Errorf(key, "%w", err)
			}
		}
		docs, err := kept.documents(text, r)
		if err == nil {
			err = place(text, docs)
		}
		if err == nil && len(docs) == 0 {
			err = fmt.Errorf("%w: there are no documents", data.ErrEmpty)
		}
		if err != nil {
			return nil, cfg.Errorf(key, "%w", err)
		}
		return docs, nil
	}
	train, err := read("data.train", trainFiles, &c.identity.Train)
	if err != nil {
		return nil, err
	}
	var val []data.Document
	if len(valFiles) > 0 {
		c.identity.Val = &data.Identity{}
		if val, err = read("data.val", valFiles, c.identity.Val); err != nil {
			return nil, err
		}
	} else {
		if train, val, err = splitDocuments(train, cfg.Data.ValFraction); err != nil {
			return nil, cfg.Errorf("data.val_fraction", "%w", err)
		}
	}
	return c, c.takeDocuments(cfg, train, val)
}

// splitDocuments parts those that are validated on from the others.
func splitDocuments(docs []data.Document, valFraction float64) (train, val []data.Document, err error) {
	is, err := data.SplitDocuments(len(docs), valFraction)
	if err != nil {
		return nil, nil, err
	}
	for i, d := range docs {
		if is[i] {
			val = append(val, d)
		} else {
			train = append(train, d)
		}
	}
	return train, val, nil
}

// allText reports whether all documents are texts.
func allText(docs []data.Document) bool {
	return !slices.ContainsFunc(docs, func(d data.Document) bool { return !d.Text })
}

// takeDocuments makes of documents what is trained and validated on.
func (c *corpora) takeDocuments(cfg *config.Config, train, val []data.Document) (err error) {
	if allText(train) && allText(val) {
		c.train, c.val = joined(train), joined(val)
		for _, part := range []struct {
			key    string
			corpus data.Corpus
		}{{"data.train", c.train}, {valKey(cfg), c.val}} {
			if err := data.CheckLength(part.corpus.Len(), cfg.Model.Context); err != nil {
				return cfg.Errorf(part.key, "the documents: %w", err)
			}
		}
		return nil
	}
	var cut, cutVal cutting
	if c.trainRecords, cut, err = fit(train, cfg.Model.Context, cfg.Data.TooLong); err != nil {
		return cfg.Errorf("data.train", "%w", err)
	}
	if c.valRecords, cutVal, err = fit(val, cfg.Model.Context, cfg.Data.TooLong); err != nil {
		return cfg.Errorf(valKey(cfg), "%w", err)
	}
	c.warnings = append(c.warnings, cut.plus(cutVal).warnings(cfg.Model.Context)...)
	return nil
}

// recordSource feeds the loader with records.
type recordSource struct {
	train, val *data.Records
	seed       uint64
	sequences  int64 // in a step
	windows    []int // records of val
}

func newRecordSource(c *corpora, cfg *config.Config) *recordSource {
	s := &recordSource{train: c.trainRecords, val: c.valRecords, seed: cfg.Run.Seed, sequences: int64(cfg.Batch.Sequences)}
	n := s.val.Len()
	want := min(n, cfg.Run.EvalBatches*cfg.Batch.Sequences)
	for i := range want {
		s.windows = append(s.windows, int(int64(i)*int64(n)/int64(want))) // from all over them
	}
	return s
}

func (s *recordSource) record(step int64, index int) int {
	return data.Order(s.seed, (step-1)*s.sequences+int64(index), s.train.Len())
}

func (s *recordSource) TrainLen(step int64, index int) int {
	return s.train.Positions(s.record(step, index))
}

func (s *recordSource) Train(step int64, index int, tokens, targets []int32) error {
	return s.train.Fill(s.record(step, index), tokens, targets)
}

func (s *recordSource) EvalWindows() int      { return len(s.windows) }
func (s *recordSource) EvalLen(index int) int { return s.val.Positions(s.windows[index]) }

func (s *recordSource) EvalFill(index int, tokens, targets []int32) error {
	return s.val.Fill(s.windows[index], tokens, targets)
}
