package propose

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/rundir"
)

// rows are the objects at the start of files of JSON lines.
type rows struct {
	keys    map[string]int // rows that have the key
	numbers map[string]int // rows whose value is a number, or nested arrays of numbers
	seen    int
	total   int64 // in the files, estimated
	longest int   // bytes of a row
	lines   []line
}

// line is a row as it is written.
type line struct {
	file string
	row  int
	text []byte
}

// check checks the rows with the reader of documents.
func (r *rows) check() error {
	for _, l := range r.lines {
		if err := corpus.CheckRow(l.text); err != nil {
			return fmt.Errorf("%w: %s, row %d: %w", ErrData, words.OneLine(l.file), l.row, err)
		}
	}
	return nil
}

// readRows reads the start of files.
func readRows(all []file) (r rows, err error) {
	r.keys, r.numbers = make(map[string]int), make(map[string]int)
	read := int64(0)
	for _, f := range all {
		at := 0
		for row := 1; at < len(f.head) && r.seen < limitRows; row++ {
			n := bytes.IndexByte(f.head[at:], '\n')
			if n < 0 {
				if !f.whole {
					break
				}
				n = len(f.head) - at
			}
			text := bytes.TrimSpace(f.head[at : at+n])
			if at += min(n+1, len(f.head)-at); len(text) == 0 {
				continue
			}
			var object map[string]any
			if err := json.Unmarshal(text, &object); err != nil {
				return r, fmt.Errorf("%w: %s, row %d is not a JSON object: %w", ErrData, words.OneLine(f.name), row, err)
			}
			r.add(object, len(text))
			r.lines = append(r.lines, line{f.name, row, text})
		}
		read += int64(at)
	}
	if r.seen == 0 {
		return r, fmt.Errorf("%w: %s has no JSON object", ErrData, words.OneLine(all[0].name))
	}
	if r.total = int64(r.seen); read > 0 {
		r.total = max(r.total, int64(float64(r.seen)*float64(bytesOf(all))/float64(read)))
	}
	return r, nil
}

func (r *rows) add(object map[string]any, size int) {
	r.seen++
	r.longest = max(r.longest, size)
	for key, v := range object {
		if v != nil {
			r.keys[key]++
		}
		if numeric(v) {
			r.numbers[key]++
		}
	}
}

// numeric reports whether a value is a number or nested arrays of numbers.
func numeric(v any) bool {
	switch v := v.(type) {
	case float64:
		return true
	case []any:
		return len(v) > 0 && !slices.ContainsFunc(v, func(x any) bool { return !numeric(x) })
	}
	return false
}

// has reports whether every row has one of the keys.
func (r *rows) has(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return r.keys[key] == r.seen })
}

// lines sets the keys for JSON lines: documents, or samples.
func (p *Proposal) lines(train []file, base *base, o Options) error {
	r, err := readRows(train)
	if err != nil {
		return err
	}
	count := words.Count(r.total)
	if int64(r.seen) < r.total {
		count = "about " + count
	}
	talks := r.has("messages", "conversations")
	switch {
	case talks, r.has("text"), r.has("prompt") && r.has("completion"), r.has("instruction") && r.has("output"):
	case r.has("x") && r.numbers["x"] == r.seen || base == nil && len(r.numbers) > 1:
		return p.samples(r, count)
	default:
		if err := r.check(); err != nil {
			return err
		}
		return fmt.Errorf("%w: rows of %s have %s; a document has \"text\", or \"prompt\" and \"completion\", or \"messages\"; name the keys in data.fields, or rename them, for example with jq",
			ErrData, words.OneLine(train[0].name), listKeys(r.keys))
	}
	if err := r.check(); err != nil {
		return err
	}
	what := "texts"
	p.Chat = talks
	switch {
	case talks:
		what = "conversations"
	case !r.has("text"):
		what = "prompts with completions"
	}
	p.About = fmt.Sprintf("JSON lines, %s %s", count, what)
	p.set("data.format", "documents", "JSON lines: \"text\", \"prompt\" and \"completion\", or conversations")
	if !r.has("text") && (!r.has("prompt") || !r.has("completion")) { // the template writes them
		switch {
		case base == nil:
			p.set("data.chat_template", rundir.FittingTemplate(nil), "How conversations are written as text")
		case base.template != "":
			p.set("data.chat_template", base.template, "How conversations are written as text; the model has no template of its own")
		}
	}
	l := length{units: r.total, records: what != "texts", mean: int(bytesOf(train) / max(r.total, 1))}
	if base == nil {
		if talks {
			return fmt.Errorf("%w: conversations need a model with a chat template: engine init --from MODEL --data %s, with the folder of a published model",
				ErrData, quoteAll(o.Patterns)[0])
		}
		size := bytesOf(train)
		p.set("data.tokenizer", "bytes", "A token for each byte; or a folder with a tokenizer.json")
		if l.context = longEnough(r.longest, 512); !l.records {
			l.units, l.context = size, contextFor(size, 128)
		}
		p.fewRecords(r.total)
		p.language(l)
		return nil
	}
	l.mean /= 3 // about three bytes a token, with the names of roles
	if l.context = longEnough(r.longest/3, 1024); !l.records {
		l.units = bytesOf(train) / 4
		l.context = contextFor(l.units, 512)
	}
	p.fewRecords(r.total)
	base.tune(p, l, o)
	return nil
}

// fewRecords keeps more of a few documents for validation.
func (p *Proposal) fewRecords(n int64) {
	if n < 100 && !p.has("data.val") && !p.ownVal {
		p.set("data.val_fraction", 0.2, "Fraction of the documents that is kept for validation")
	}
}

// longEnough returns a context for documents of a length in tokens.
func longEnough(tokens, most int) int {
	context := 64
	for context < tokens && context < most {
		context *= 2
	}
	return context
}

func listKeys(keys map[string]int) string {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		names = append(names, fmt.Sprintf("%.40q", key))
	}
	if len(names) == 0 {
		return "no keys"
	}
	return strings.Join(names[:min(len(names), 6)], ", ")
}

// samples sets the keys for JSON lines of numbers.
func (p *Proposal) samples(r rows, count string) error {
	p.About = fmt.Sprintf("JSON lines, %s samples of %s", count, listKeys(r.keys))
	p.set("data.format", "jsonl", "Samples as JSON objects")
	label := ""
	for _, name := range labelNames {
		if r.has(name) {
			label = name
			break
		}
	}
	if label == "" {
		return fmt.Errorf("%w: no key of the rows looks like a class (%s); write data.label or data.targets into a config: engine help formats",
			ErrData, listKeys(r.keys))
	}
	p.set("data.label", label, "The key with the class; or targets = [...]: keys of numbers to predict")
	if !r.has("x") {
		var features []string
		for _, key := range slices.Sorted(maps.Keys(r.numbers)) {
			if key != label && r.numbers[key] == r.seen {
				features = append(features, key)
			}
		}
		if len(features) == 0 {
			return fmt.Errorf("%w: no key of the rows has numbers to learn from (%s)", ErrData, listKeys(r.keys))
		}
		p.set("data.features", features, "The keys to learn from")
	}
	p.classifier(r.total, 0)
	return nil
}

// labelNames are usual names of classes.
var labelNames = []string{"label", "class", "target", "y", "species", "category", "outcome"}
