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

// best finds the best path from the front. Of equal ones the token that begins first stays.
func (u *unigram) best(w *work, dst []int32, word []byte) []int32 {
	path := slices.Grow(w.path[:0], len(word)+1)[:len(word)+1]
	for i := range path {
		path[i] = pathNode{from: -1}
	}
	units := u.trie.units
	for at := 0; at < len(word); {
		score := path[at].score
		_, size := utf8.DecodeRune(word[at:])
		single := false // one token is the character
		node := int32(trieRoot)
		for i := at; i < len(word); i++ {
			next := units[node].base ^ int32(word[i])
			unit := &units[next]
			if unit.parent != node {
				break
			}
			if node = next; unit.id < 0 {
				continue
			}
			to := &path[i+1]
			if sum := score + u.scores[unit.id]; to.from < 0 || sum > to.score {
				*to = pathNode{sum, int32(at), unit.id}
			}
			single = single || i+1-at == size
		}
		if to := &path[at+size]; !single {
			if sum := score + u.unkScore; to.from < 0 || sum > to.score {
				if u.unk < 0 {
					w.err = errNoUnk
					return dst
				}
				*to = pathNode{sum, int32(at), u.unk}
			}
		}
		at += size
	}
	dst = u.follow(w, dst, word, path)
	if w.path = path; cap(path) > maxKeptSymbols {
		w.path = nil
	}
	return dst
}

// follow appends the ids of a path, which is known from its end.
func (u *unigram) follow(w *work, dst []int32, word []byte, path []pathNode) []int32 {
	began, spans := len(dst), len(w.spans)
	for end := int32(len(word)); end > 0; {
		n := path[end]
		from := n.from
		if n.id != u.unk {
			dst = append(dst, n.id)
			w.spanned(int(from), int(end))
			end = from
			continue
		}
		for from > 0 && path[from].id == u.unk {
			from = path[from].from
		}
		dst = u.unknown(w, dst, word, int(from), int(end))
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
