package ggufmodel

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"
)

// sentencePiece returns the tokenizer.json of SentencePiece's BPE, which has scores and no merges.
func (t *textReader) sentencePiece() (object, error) {
	vocab, added, err := t.addedTokens()
	if err != nil {
		return nil, err
	}
	var merges [][2]string
	prefix, set := read[bool](t, prefixKey)
	if t.text(tokenizerKey) == gemma4Tokenizer {
		merges, err = t.merges()
		prefix = false
	} else {
		scores, _ := read[[]float32](t, scoresKey)
		if len(scores) != len(t.names) {
			t.fail(scoresKey, "a list of %d, but there are %d tokens", len(scores), len(t.names))
			return nil, t.err
		}
		merges, err = t.mergesOf(vocab, scores)
		prefix = prefix || !set // llama.cpp's default
	}
	if err != nil {
		return nil, err
	}
	spaces := object{"type": "Replace", "pattern": object{"String": " "}, "content": meta}
	back := object{"type": "Replace", "pattern": object{"String": meta}, "content": " "}
	normalizer := spaces
	decoders := []object{back, {"type": "ByteFallback"}, {"type": "Fuse"}}
	if prefix {
		normalizer = object{"type": "Sequence", "normalizers": []object{{"type": "Prepend", "prepend": meta}, spaces}}
		decoders = append(decoders, object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	var unknown any
	for id, kind := range t.types {
		if kind == unknownToken {
			unknown = t.names[id]
			break
		}
	}
	return object{"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": normalizer, "pre_tokenizer": nil,
		"post_processor": t.post(nil), "decoder": object{"type": "Sequence", "decoders": decoders},
		"model": object{"type": "BPE", "dropout": nil, "unk_token": unknown, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": true, "byte_fallback": slices.Contains(t.types, byteToken), "ignore_merges": false, "vocab": vocab, "merges": merges}}, nil
}

// mergesOf returns the merges that scores imply, in the order of transformers' converter: each token is made of
// any two tokens whose text it is, those with the highest score first.
func (t *textReader) mergesOf(vocab map[string]int32, scores []float32) ([][2]string, error) {
	type merge struct {
		pair  [2]string
		score float32
	}
	var all []merge
	work := 0
	for id, name := range t.names {
		if t.types[id] != normalToken {
			continue
		}
		if work += len(name) * len(name); work > maxMergeBytes {
			return nil, fmt.Errorf("%s: its tokens are too long for SentencePiece's BPE: token %d has %d bytes", tokensKey, id, len(name))
		}
		if !utf8.ValidString(name) {
			return nil, fmt.Errorf("%s: token %d is not valid UTF-8", tokensKey, id)
		}
		if scores[id] != scores[id] {
			return nil, fmt.Errorf("%s: the score of token %d is not a number", scoresKey, id)
		}
		from := len(all)
		for at := range name {
			left, okLeft := vocab[name[:at]]
			right, okRight := vocab[name[at:]]
			if at > 0 && okLeft && okRight && t.types[left] == normalToken && t.types[right] == normalToken {
				all = append(all, merge{[2]string{name[:at], name[at:]}, scores[id]})
			}
		}
		slices.SortFunc(all[from:], func(a, b merge) int {
			return cmp.Or(cmp.Compare(vocab[a.pair[0]], vocab[b.pair[0]]), cmp.Compare(vocab[a.pair[1]], vocab[b.pair[1]]))
		})
	}
	slices.SortStableFunc(all, func(a, b merge) int {
		runes := func(s string) int { return utf8.RuneCountInString(s) }
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(runes(b.pair[0]), runes(a.pair[0])),
			cmp.Compare(runes(b.pair[1]), runes(a.pair[1])))
	})
	pairs := make([][2]string, len(all))
	for i, m := range all {
		pairs[i] = m.pair
	}
	return pairs, nil
}
