package hf

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// ErrUnsupported: a part of a tokenizer.json is not supported.
var ErrUnsupported = errors.New("unsupported tokenizer")

// Tokenizer is the tokenizer that a tokenizer.json describes.
type Tokenizer struct {
	chars       *table
	raw, normal finding // added tokens, looked for in the text and in the normalized text
	normalizers []normalizer
	steps       []step
	*vocabulary // the model's tokens
	model       model
	bpe         *bpe       // the model, if it is BPE
	post        []postPart // nil: the text's ids alone
	decoders    []decodeStep
	joined      bool // there is no decoder: tokens are joined by spaces

	byName  map[string]int32 // of added tokens
	names   map[int32]string // of added tokens, as they are decoded
	special map[string]bool  // by name
	vocab   int
	cuts    bool // texts may be cut at some places
	longest int  // see Longest
	pool    sync.Pool
}

// model encodes the words of a text.
type model interface {
	// encode appends the ids of a word, which is valid UTF-8 or, for a bpe of bytes, any bytes. If
	// w.on it also appends their spans.
	encode(w *work, dst []int32, word []byte) []int32
}

// postPart is a part of what a post-processor makes: ids, or the text's.
type postPart struct {
	text bool
	ids  []int32
}

// work holds one goroutine's memory for encoding.
type work struct {
	chain  part
	cache  wordCache
	queue  mergeQueue
	path   []pathNode
	ids    []int32
	ranks  [maxScanned][2]int32
	name   []byte
	runes  []rune
	normal [2][]byte
	valid  []byte
	out    []int32
	err    error
	trace
}

// Mode says how encoding treats special tokens.
type Mode int

const (
	// Plain treats the names of special tokens as text.
	Plain Mode = iota
	// Special encodes them as these tokens.
	Special
	// Whole does the same, and the post-processor adds its tokens.
	Whole
)

// AppendEncode appends a text's ids. On an error it returns dst unchanged.
func (t *Tokenizer) AppendEncode(dst []int32, text []byte, mode Mode) ([]int32, error) {
	w := t.work()
	defer t.pool.Put(w)
	from := len(dst)
	out, err := t.encode(w, dst, text, mode)
	if err != nil {
		return dst[:from], err
	}
	if t.post != nil {
		out = t.process(out, from, mode == Whole)
	}
	return out, nil
}

// work returns an unused work.
func (t *Tokenizer) work() *work {
	w, _ := t.pool.Get().(*work)
	if w == nil {
		w = &work{}
		w.chain = words{t.model}
		for i := len(t.steps) - 1; i >= 0; i-- {
			w.chain = t.steps[i](w.chain)
		}
	}
	return w
}

// encode appends a text's ids without those of the post-processor.
func (t *Tokenizer) encode(w *work, dst []int32, text []byte, mode Mode) ([]int32, error) {
	if !utf8.Valid(text) {
		w.valid = appendValid(w.valid[:0], text)
		if w.on {
			w.whole = w.whole.edited(text, func(edit editFunc) { validEdits(text, edit) })
		}
		text = w.valid
	}
	w.out, w.err = dst, nil
	t.raw.cut(t.chars, text, mode == Plain, func(id int32, from, to int) { w.take(id, w.whole, from, to) }, func(from, to int) {
		w.source = w.whole.tail(from)
		normalized := t.normalize(w, text[from:to])
		t.normal.cut(t.chars, normalized, mode == Plain, func(id int32, from, to int) { w.take(id, w.source, from, to) }, func(at, end int) {
			w.chain.piece(w, normalized[at:end], at, from == 0 && at == 0)
		})
	})
	out := w.out
	w.out = nil
	return out, w.err
}

// process applies the post-processor to the ids starting at index from.
func (t *Tokenizer) process(ids []int32, from int, add bool) []int32 {
	if !add {
		if len(t.post) == 1 && t.post[0].text {
			return ids
		}
	}
	text := bytesOf(ids[from:])
	ids = ids[:from]
	for _, p := range t.post {
		switch {
		case p.text:
			ids = append(ids, text...)
		case add:
			ids = append(ids, p.ids...)
		}
	}
	return ids
}

func bytesOf(ids []int32) []int32 { return append([]int32(nil), ids...) }

// Longest returns the most bytes of a text that an id can stand for; 0: no limit is known. Only byte-level BPE without a normalizer
// has one: it encodes each byte.
func (t *Tokenizer) Longest() int { return t.longest }

// longestToken is Longest, computed.
func (t *Tokenizer) longestToken() (n int) {
	if !t.cuts || t.bpe == nil || !t.bpe.bytes || len(t.normalizers) > 0 {
		return 0
	}
	for _, id := range t.bpe.byteIDs {
		if !id.ok {
			return 0
		}
	}
	for _, size := range t.bpe.sizes {
		n = max(n, int(size))
	}
	for _, f := range []*finding{&t.raw, &t.normal} {
		for _, a := range f.list {
			n = max(n, len(a.content))
		}
	}
	return n
}

// Vocab returns the largest id plus one.
func (t *Tokenizer) Vocab() int { return t.vocab }

// Token returns an id's name: an added token's content, or the vocabulary's token.
func (t *Tokenizer) Token(id int32) (string, bool) {
	if name, ok := t.names[id]; ok {
		return name, true
	}
	if id < 0 || int(id) >= len(t.tokens) || !t.has[id] {
		return "", false
	}
	return t.tokens[id], true
}

// TokenID returns the id of a token by its name.
func (t *Tokenizer) TokenID(name string) (int32, bool) {
	if id, ok := t.byName[name]; ok {
		return id, true
	}
	id, ok := t.ids[name]
	return id, ok
}

// IsSpecial reports whether decoding may leave an id out.
func (t *Tokenizer) IsSpecial(id int32) bool {
	name, ok := t.Token(id)
	return ok && t.special[name]
}

// Cut returns a place in a text of more than most bytes, at most that far from its start, at which
// it may be cut: plain encoding of both parts gives the ids of the whole. 0: there is none.
//
// In the known patterns, no word has white space after a letter or a digit, and none continues
// after a line break that has no white space on either side, unless a slash follows it. They don't
// look back, and look ahead no further than the next character.
func (t *Tokenizer) Cut(text []byte, most int) int {
	if !t.cuts {
		return 0
	}
	for at := most; at > 1; at-- {
		if text[at-1] == '\n' {
			if text[at] == '/' {
				continue
			}
			if p, ok := t.valid(text[at:], false); !ok || p&propSpace != 0 {
				continue
			}
			if p, ok := t.valid(text[:at-1], true); ok && p&propSpace == 0 {
				return at
			}
			continue
		}
		if text[at] != ' ' && text[at] != '\n' {
			continue
		}
		if p, ok := t.valid(text[:at], true); ok && p&(propLetter|propNumber) != 0 {
			return at
		}
	}
	return 0
}

// valid returns the properties of the last or first character, unless it is invalid UTF-8 or a
// normalizer may change it.
func (t *Tokenizer) valid(text []byte, last bool) (uint32, bool) {
	decode := utf8.DecodeRune
	if last {
		decode = utf8.DecodeLastRune
	}
	r, size := decode(text)
	if r == utf8.RuneError && size <= 1 || len(t.normalizers) > 0 && t.chars.special[r] {
		return 0, false
	}
	return t.chars.prop(r), true
}

// clip shortens a file's text for a message, and quotes it if it could break the line or control a
// terminal.
func clip[T ~string | ~[]byte](text T) string {
	const most = 60
	short := string(bytes.TrimSpace([]byte(text)))
	if len(short) > most {
		short = strings.ToValidUTF8(short[:most], "") + "…"
	}
	if strings.ContainsFunc(short, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(short)
	}
	return short
}

// quote is clip for text inside quotes.
func quote(text string) string {
	if c := clip(text); strings.HasPrefix(c, `"`) {
		return c
	}
	return fmt.Sprintf("%q", clip(text))
}
