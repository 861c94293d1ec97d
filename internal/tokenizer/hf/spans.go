package hf

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// Span is a part of a text: from a byte to before another one.
type Span struct{ From, To int32 }

// trace is what a work keeps to say which part of the text each id stands for.
type trace struct {
	on     bool
	whole  source // of the text that added tokens are looked for in
	source source // of the text that pieces are parts of
	word   int    // where the word that is encoded is in that text
	spans  []Span // of each id, in the text that was given
	marks  bool   // symbols fills parts
	parts  []Span // of each symbol, in its word
	starts []int32
}

// EncodeSpans returns a text's ids and the part of the text for each. Text that a normalizer
// inserts before a character belongs to that character. The post-processor adds no tokens.
func (t *Tokenizer) EncodeSpans(text []byte, mode Mode) ([]int32, []Span, error) {
	if len(text) > math.MaxInt32 {
		return nil, nil, fmt.Errorf("%w: the text has %d bytes; the limit is %d", ErrUnsupported, len(text), math.MaxInt32)
	}
	w := t.work()
	defer t.pool.Put(w)
	w.on, w.whole, w.spans = true, source{}, nil
	ids, err := t.encode(w, nil, text, mode)
	spans := w.spans
	w.trace = trace{parts: w.parts, starts: w.starts}
	if err != nil {
		return nil, nil, err
	}
	if t.post != nil {
		return t.process(ids, 0, false), t.repeat(spans), nil
	}
	return ids, spans, nil
}

// repeat does with spans what a post-processor that adds no tokens does with ids.
func (t *Tokenizer) repeat(spans []Span) []Span {
	var all []Span
	for _, p := range t.post {
		if p.text {
			all = append(all, spans...)
		}
	}
	return all
}

func (w *work) take(id int32, of source, from, to int) {
	w.out = append(w.out, id)
	if w.on {
		w.spans = append(w.spans, of.span(from, to))
	}
}

// measure fills sizes: how many bytes of a word a token stands for, unless it stands for what the
// vocabulary lacks.
func (m *bpe) measure() {
	const never = -1 << 30 // no sum with it is the length of a word
	m.sizes = make([]int32, len(m.tokens))
	for id, name := range m.tokens {
		m.sizes[id] = int32(len(name))
		if m.bytes {
			bytes, ok := unspell(nil, name)
			if m.sizes[id] = int32(len(bytes)); !ok {
				m.sizes[id] = never
			}
		}
	}
	if m.byteFallback {
		for _, f := range m.fallbacks {
			if f.ok {
				m.sizes[f.id] = 1
			}
		}
	}
	if m.hasUnk && int(m.unk) < len(m.sizes) {
		m.sizes[m.unk] = never
	}
}

// locate appends the spans of a word's ids.
func (m *bpe) locate(w *work, word []byte, at int, ids []int32) {
	total := int64(0)
	for _, id := range ids {
		total += int64(m.sizes[id])
	}
	if total == int64(len(word)) {
		for _, id := range ids {
			to := at + int(m.sizes[id])
			w.spans = append(w.spans, w.source.span(at, to))
			at = to
		}
		return
	}
	// It has characters that the vocabulary lacks, or what is written inside of words or at their end.
	w.marks = true
	w.ids = m.symbols(w, w.ids[:0], word)
	w.marks = false
	if len(w.ids) == 0 {
		return
	}
	w.starts = w.starts[:0]
	_ = w.queue.merge(&m.merges, nil, w.ids, &w.starts)
	for i, first := range w.starts {
		end := len(w.parts)
		if i+1 < len(w.starts) {
			end = int(w.starts[i+1])
		}
		w.spans = append(w.spans, w.source.span(at+int(w.parts[first].From), at+int(w.parts[end-1].To)))
	}
}

func (w *work) mark(from, to int32) {
	if w.marks {
		w.parts = append(w.parts, Span{from, to})
	}
}

// markUnknown marks the symbols that stand for a character that the vocabulary lacks, and returns
// what the unknown token stands for that is still to be written.
func (m *bpe) markUnknown(w *work, char, unk Span, symbols []int32, waited, waits bool) Span {
	switch {
	case len(symbols) == 0 && waits && waited:
		return Span{unk.From, char.To} // they are fused
	case len(symbols) == 0:
		return char
	case waited && len(symbols) == 1 && symbols[0] == m.unk: // the one before
		w.mark(unk.From, unk.To)
		return char
	}
	for i := range symbols {
		if at := char.From + int32(i); int(char.To-char.From) == len(symbols) {
			w.mark(at, at+1)
		} else {
			w.mark(char.From, char.To)
		}
	}
	return unk
}

func validEdits(text []byte, edit editFunc) {
	for at := 0; at < len(text); {
		at += validPrefix(text[at:])
		if at < len(text) {
			n := invalidPart(text[at:])
			edit(at, at+n, []byte(replacement))
			at += n
		}
	}
}

// charEnd is where the character at a byte ends.
func charEnd(text []byte, at int) int {
	_, size := utf8.DecodeRune(text[at:])
	return at + size
}

// Around returns the ids that the post-processor adds before and after a text.
func (t *Tokenizer) Around() (before, after []int32) {
	text := t.post == nil
	for _, p := range t.post {
		switch {
		case p.text:
			text, after = true, nil
		case text:
			after = append(after, p.ids...)
		default:
			before = append(before, p.ids...)
		}
	}
	return before, after
}

// SpecialNames counts the names of special tokens in a text.
func (t *Tokenizer) SpecialNames(text []byte) (n int) {
	w := t.work()
	defer t.pool.Put(w)
	count := func(id int32, _, _ int) {
		if t.IsSpecial(id) {
			n++
		}
	}
	t.raw.cut(t.chars, text, false, count, func(from, to int) {
		if t.normal.nodes != nil {
			t.normal.cut(t.chars, t.normalize(w, text[from:to]), false, count, func(int, int) {})
		}
	})
	return n
}

// spanned keeps the span of an id that stands for a part of the word that is encoded.
func (w *work) spanned(from, to int) {
	if w.on {
		w.spans = append(w.spans, w.source.span(w.word+from, w.word+to))
	}
}
