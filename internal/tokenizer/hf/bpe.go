package hf

import (
	"fmt"
	"unicode/utf8"
)

// bpe merges characters or bytes to tokens.
type bpe struct {
	vocabulary
	merges pairTable

	prefix, suffix                      string // of symbols inside and at the end of a word
	unk                                 int32
	hasUnk                              bool
	fuseUnk, byteFallback, ignoreMerges bool

	// bytes says that words come as bytes, which are spelled by byteNames in the vocabulary.
	bytes     bool
	words     map[string]int32 // the vocabulary as words come, where ignoreMerges
	longest   int              // of words, in bytes
	byteIDs   [256]symbolID    // of bytes as symbols, where bytes
	charIDs   [utf8.RuneSelf]symbolID
	fallbacks [256]symbolID // <0xNN>
	sizes     []int32       // of tokens, in bytes of a word; see locate
	breakAt   rune          // no merge joins another character with this one behind it; 0: none is known
}

// symbolID is an id, or that there is none.
type symbolID struct {
	id int32
	ok bool
}

// prepare makes what encoding looks up.
func (m *bpe) prepare() {
	find := func(name string) symbolID {
		id, ok := m.ids[name]
		return symbolID{id, ok}
	}
	for b := range 256 {
		m.fallbacks[b] = find(fmt.Sprintf("<0x%02X>", b))
		m.byteIDs[b] = find(byteNames[b])
		if b < utf8.RuneSelf {
			m.charIDs[b] = find(string(rune(b)))
		}
	}
	m.measure()
	if !m.ignoreMerges {
		return
	}
	m.words = m.ids
	if m.bytes {
		m.words = make(map[string]int32, len(m.ids))
		for name, id := range m.ids {
			if word, ok := unspell(nil, name); ok {
				m.words[string(word)] = id
			}
		}
	}
	for word := range m.words {
		m.longest = max(m.longest, len(word))
	}
}

// encode appends the ids of a word, which is valid UTF-8 or, where m.bytes, any bytes.
func (m *bpe) encode(w *work, dst []int32, word []byte) []int32 {
	if len(word) == 0 {
		return dst
	}
	if m.ignoreMerges && len(word) <= m.longest {
		if id, ok := m.words[string(word)]; ok {
			if w.on {
				w.spans = append(w.spans, w.source.span(w.word, w.word+len(word)))
			}
			return append(dst, id)
		}
	}
	if m.breakAt == 0 {
		return m.cached(w, dst, word, 0)
	}
	// Parts between which nothing merges: they come again, as words do.
	from, last := 0, m.breakAt
	for at := 0; at < len(word); {
		r, size := rune(word[at]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(word[at:])
		}
		if r == m.breakAt && last != m.breakAt {
			dst = m.cached(w, dst, word[from:at], from)
			from = at
		}
		last = r
		at += size
	}
	return m.cached(w, dst, word[from:], from)
}

// cached encodes a word, or a part of one that begins at a byte of it.
func (m *bpe) cached(w *work, dst []int32, word []byte, at int) []int32 {
	from := len(dst)
	dst = m.lookup(w, dst, word)
	if w.on {
		m.locate(w, word, w.word+at, dst[from:])
	}
	return dst
}

// lookup looks a word up among those that were encoded before.
func (m *bpe) lookup(w *work, dst []int32, word []byte) []int32 {
	if len(word) > maxCachedBytes {
		return m.merge(w, dst, word)
	}
	slot, ids := w.cache.find(word)
	if ids != nil {
		return append(dst, ids...)
	}
	from := len(dst)
	dst = m.merge(w, dst, word)
	w.cache.put(slot, word, dst[from:])
	return dst
}

// merge encodes a word.
func (m *bpe) merge(w *work, dst []int32, word []byte) []int32 {
	w.ids = m.symbols(w, w.ids[:0], word)
	if len(w.ids) <= maxScanned {
		return append(dst, m.merges.scan(w.ids, &w.ranks)...)
	}
	return w.queue.merge(&m.merges, dst, w.ids, nil)
}

// symbols appends the ids of a word's characters.
func (m *bpe) symbols(w *work, ids []int32, word []byte) []int32 {
	unk := false // one is to be written
	var unkAt Span
	w.parts = w.parts[:0]
	for at := 0; at < len(word); {
		var found symbolID
		size := 1
		if m.bytes {
			found = m.byteIDs[word[at]]
		} else if word[at] >= utf8.RuneSelf {
			_, size = utf8.DecodeRune(word[at:])
		}
		first, last := at == 0, at+size == len(word)
		affixed := m.prefix != "" && !first || m.suffix != "" && last
		if affixed || !m.bytes {
			if size == 1 && !affixed {
				found = m.charIDs[word[at]]
			} else {
				w.name = m.name(w.name[:0], word[at:at+size], first, last)
				found.id, found.ok = m.ids[string(w.name)]
			}
		}
		if found.ok {
			if unk {
				ids, unk = append(ids, m.unk), false
				w.mark(unkAt.From, unkAt.To)
			}
			ids = append(ids, found.id)
			w.mark(int32(at), int32(at+size))
		} else {
			was, waited := len(ids), unk
			ids, unk = m.unknown(w, ids, word[at:at+size], first, last, unk)
			if w.marks {
				unkAt = m.markUnknown(w, Span{int32(at), int32(at + size)}, unkAt, ids[was:], waited, unk)
			}
		}
		at += size
	}
	if unk {
		ids = append(ids, m.unk)
		w.mark(unkAt.From, unkAt.To)
	}
	return ids
}

// name is how the vocabulary spells a character at its place.
func (m *bpe) name(dst, char []byte, first, last bool) []byte {
	if !first {
		dst = append(dst, m.prefix...)
	}
	if m.bytes {
		dst = spell(dst, char)
	} else {
		dst = append(dst, char...)
	}
	if last {
		dst = append(dst, m.suffix...)
	}
	return dst
}

// unknown appends what stands for a character that the vocabulary lacks. An unknown token
// waits until the next known character, also while bytes stand for others: so the library
// does it.
func (m *bpe) unknown(w *work, ids []int32, char []byte, first, last, unk bool) ([]int32, bool) {
	if m.byteFallback {
		w.name = m.name(w.name[:0], char, first, last)
		was := len(ids)
		for _, b := range w.name {
			if !m.fallbacks[b].ok {
				ids = ids[:was]
				break
			}
			ids = append(ids, m.fallbacks[b].id)
		}
		if len(ids) > was {
			return ids, unk
		}
	}
	if !m.hasUnk {
		return ids, unk // dropped
	}
	if unk && !m.fuseUnk {
		ids = append(ids, m.unk)
	}
	return ids, true
}
