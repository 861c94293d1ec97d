package hf

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// unigram takes the tokens whose scores have the largest sum.
type unigram struct {
	vocabulary
	trie         *trie
	scores       []float64 // by id
	unk          int32     // -1: none
	unkScore     float64   // of a character that no token stands for
	byteFallback bool
	fallbacks    [256]symbolID // <0xNN>
}

// unkPenalty is how much less an unknown character scores than the token with the lowest score.
const unkPenalty = 10

// pathNode is the best way to a place in a word: its last token begins at from.
type pathNode struct {
	score    float64
	from, id int32
}

var errNoUnk = errors.New("the text has a character that no token stands for, and the model has no unk_id")

func (u *unigram) prepare() {
	u.trie = newTrie(u.ids)
	for b := range 256 {
		id, ok := u.ids[fmt.Sprintf("<0x%02X>", b)]
		u.fallbacks[b] = symbolID{id, ok}
	}
}

func (u *unigram) encode(w *work, dst []int32, word []byte) []int32 {
	if len(word) == 0 || w.err != nil {
		return dst
	}
	if w.on || len(word) > maxCachedBytes {
		return u.best(w, dst, word)
	}
	slot, ids := w.cache.find(word)
	if ids != nil {
		return append(dst, ids...)
	}
	from := len(dst)
	if dst = u.best(w, dst, word); w.err == nil {
		w.cache.put(slot, word, dst[from:])
	}
	return dst
}

// best finds the best path from the front. Of equal ones the token that begins first stays. A long word
// needs no more memory than its longest part over which tokens reach.
func (u *unigram) best(w *work, dst []int32, word []byte) []int32 {
	path := append(w.path[:0], pathNode{from: -1}) // of the places from base on
	base, reach := 0, 0                            // no token that begins before here ends behind reach
	for at := 0; at < len(word); {
		if at == reach && at-base >= unigramPart && path[at-base].id != u.unk {
			dst = u.follow(w, dst, word, base, path)
			path[0], base = pathNode{path[at-base].score, -1, 0}, at
			path = path[:1]
		}
		score := path[at-base].score
		_, size := utf8.DecodeRune(word[at:])
		single := false // one token is the character
		node := int32(trieRoot)
		for i := at; i < len(word); i++ {
			unit, child := u.trie.unit(node, word[i])
			if unit.parent != node {
				break
			}
			if node = child; unit.id < 0 {
				continue
			}
			path = longer(path, i+1-base)
			if to, sum := &path[i+1-base], score+u.scores[unit.id]; to.from < 0 || sum > to.score {
				*to = pathNode{sum, int32(at - base), unit.id}
			}
			single = single || i+1-at == size
			reach = max(reach, i+1)
		}
		if at += size; !single {
			path = longer(path, at-base)
			if to, sum := &path[at-base], score+u.unkScore; to.from < 0 || sum > to.score {
				if u.unk < 0 {
					w.err = errNoUnk
					return dst
				}
				*to = pathNode{sum, int32(at - size - base), u.unk}
			}
			reach = max(reach, at)
		}
	}
	dst = u.follow(w, dst, word, base, path)
	if w.path = path; cap(path) > maxKeptSymbols {
		w.path = nil
	}
	return dst
}

// longer makes a path reach a place.
func longer(path []pathNode, to int) []pathNode {
	for len(path) <= to {
		path = append(path, pathNode{from: -1})
	}
	return path
}

// follow appends the ids of a path that begins at base, which is known from its end.
func (u *unigram) follow(w *work, dst []int32, word []byte, base int, path []pathNode) []int32 {
	began, spans := len(dst), len(w.spans)
	for end := len(path) - 1; end > 0; {
		n := path[end]
		from := int(n.from)
		if n.id == u.unk {
			for from > 0 && path[from].id == u.unk {
				from = int(path[from].from)
			}
			dst = u.unknown(w, dst, word, base+from, base+end)
		} else {
			dst = append(dst, n.id)
			w.spanned(base+from, base+end)
		}
		end = from
	}
	slices.Reverse(dst[began:])
	slices.Reverse(w.spans[spans:])
	return dst
}

// unknown appends the ids of unknown characters that follow one another, in reverse.
func (u *unigram) unknown(w *work, dst []int32, word []byte, from, to int) []int32 {
	text := word[from:to]
	if id, ok := u.ids[string(text)]; ok {
		w.spanned(from, to)
		return append(dst, id)
	}
	was := len(dst)
	for i := len(text) - 1; u.byteFallback && i >= 0; i-- {
		b := u.fallbacks[text[i]]
		if !b.ok {
			dst = dst[:was]
			break
		}
		dst = append(dst, b.id)
	}
	if len(dst) == was {
		dst = append(dst, u.unk)
	}
	for range len(dst) - was {
		w.spanned(from, to)
	}
	return dst
}
