package hf

import (
	"errors"
	"fmt"
)

func parseWordPiece(s settings) (*wordPiece, error) {
	p := &wordPiece{}
	var unk, prefix string
	for _, name := range []string{"unk_token", "continuing_subword_prefix", "max_input_chars_per_word"} {
		if !s.has(name) {
			return nil, fmt.Errorf("%s is missing", name)
		}
	}
	if err := errors.Join(s.into("unk_token", &unk), s.into("continuing_subword_prefix", &prefix),
		s.into("max_input_chars_per_word", &p.most)); err != nil {
		return nil, err
	}
	if p.most < 0 {
		return nil, fmt.Errorf("max_input_chars_per_word is %d; it must be at least 0", p.most)
	}
	if _, err := p.parseVocab(s["vocab"]); err != nil {
		return nil, err
	}
	size := 0
	for name := range p.ids {
		if size += len(name); size > maxTrieBytes {
			return nil, fmt.Errorf("vocab has more than %d bytes of tokens, the limit", maxTrieBytes)
		}
	}
	p.trie = newTrie(p.ids)
	p.inside = p.trie.walk(prefix)
	p.unk.id, p.unk.ok = p.ids[unk]
	return p, nil
}
