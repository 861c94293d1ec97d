package hf

import (
	"errors"
	"unicode/utf8"
)

// wordPiece takes the longest token that a word begins with, then the longest of what is left, with a
// prefix. A word that cannot be split like that is unknown.
type wordPiece struct {
	vocabulary
	trie   *trie
	inside int32 // the node of the prefix; -1: no token has it
	unk    symbolID
	most   int // characters of a word
}

var errNoUnkToken = errors.New("the text has a word that the vocabulary lacks, and unk_token is not in the vocabulary")

func (p *wordPiece) encode(w *work, dst []int32, word []byte) []int32 {
	began, spans := len(dst), len(w.spans)
	known := utf8.RuneCount(word) <= p.most
	for at := 0; known && at < len(word); {
		node := int32(trieRoot)
		if at > 0 {
			node = p.inside
		}
		end, id := at, int32(0)
		for i := at; i < len(word) && node >= 0; i++ {
			if node = p.trie.child(node, word[i]); node >= 0 && p.trie.units[node].id >= 0 {
				end, id = i+1, p.trie.units[node].id
			}
		}
		if known = end > at; known {
			dst = append(dst, id)
			w.spanned(at, end)
			at = end
		}
	}
	if known {
		return dst
	}
	if !p.unk.ok && w.err == nil {
		w.err = errNoUnkToken
	}
	w.spans = w.spans[:spans]
	w.spanned(0, len(word))
	return append(dst[:began], p.unk.id)
}
