package ggufmodel

import (
	"fmt"
	"regexp"
)

// byteName is the name of a byte's token in SentencePiece.
var byteName = regexp.MustCompile(`^<0x[0-9A-F]{2}>$`)

// The scores of tokens that no merge makes, as in llama.cpp's converter.
const (
	addedScore  = -1000
	unusedScore = -10000
)

// sentencePiece reports whether a tokenizer is SentencePiece's BPE: spaces are written as ▁.
func (f *file) sentencePiece() bool {
	for _, p := range append(f.Normalizer.flat(), f.PreTokenizer.flat()...) {
		if p.Type == "Metaspace" || p.Type == "Replace" && p.Content == meta {
			return true
		}
	}
	return f.Model.ByteFallback
}

// spacePrefix reports whether a text gets a space before it.
func (f *file) spacePrefix() (prefix bool, err error) {
	spaces := false
	for _, p := range append(f.Normalizer.flat(), f.PreTokenizer.flat()...) {
		switch {
		case p.Type == "Prepend" && p.Prepend == meta:
			prefix = true
		case p.Type == "Replace" && p.Pattern.String == " " && p.Content == meta:
			spaces = true
		case p.Type == "Metaspace":
			spaces = true
			prefix = p.Scheme == "always" || p.Scheme == "first" || p.Scheme == "" && (p.PrefixSpace == nil || *p.PrefixSpace)
		// Gemma's pre-tokenizer splits at spaces, of which its normalizer leaves none.
		case p.Type == "Split" && p.Pattern.String == " ":
		default:
			return false, fmt.Errorf("%w: tokenizer.json has the part %s, which SentencePiece's BPE in llama.cpp does not have", ErrUnsupported,
				p.Type)
		}
	}
	if !spaces {
		return false, fmt.Errorf("%w: tokenizer.json has byte_fallback, but does not write spaces as %s", ErrUnsupported, meta)
	}
	return prefix, nil
}

// sentencePieceScores returns the score of each id, by which llama.cpp orders merges: the first merge that
// makes a token has rank 0 and the highest score.
func sentencePieceScores(names []string, merges [][2]string) (scores []float32, first map[string]int) {
	first = make(map[string]int, len(merges))
	for rank, pair := range merges {
		if _, ok := first[pair[0]+pair[1]]; !ok {
			first[pair[0]+pair[1]] = rank
		}
	}
	scores = make([]float32, len(names))
	for id, name := range names {
		if rank, ok := first[name]; ok {
			scores[id] = -float32(rank)
		}
	}
	return scores, first
}

func (w *writer) sentencePiece(t Text, f *file, merges [][2]string, vocab int) error {
	prefix, err := f.spacePrefix()
	if err != nil {
		return err
	}
	byMerges := w.arch.tokenizer != ""
	if byMerges && prefix {
		return fmt.Errorf("%w: the tokenizer adds a space before a text, which llama.cpp's %s does not", ErrUnsupported, w.arch.name)
	}
	names, types := f.tokens(t.Tokenizer, vocab)
	scores, _ := sentencePieceScores(names, merges)
	for id, name := range names {
		switch {
		case f.Model.Unk != nil && name == *f.Model.Unk:
			types[id], scores[id] = unknownToken, 0
		case types[id] == unusedToken:
			scores[id] = unusedScore
		case types[id] != normalToken:
			scores[id] = addedScore
		case byteName.MatchString(name):
			types[id] = byteToken
		}
	}
	if byMerges {
		for id := range scores {
			scores[id] = addedScore
		}
		w.add(tokenizerKey, w.arch.tokenizer)
		w.add(tokensKey, names)
		w.add(scoresKey, scores)
		w.add(typesKey, types)
		w.add(mergesKey, joined(merges))
		w.add(prefixKey, prefix)
		return nil
	}
	if pair, ok := w.onlyByPairs(names, types, merges); ok {
		w.warn("the tokenizer has no merge of %q and %q, but llama.cpp merges any two tokens whose text is a token: it may encode some texts in another way",
			pair[0], pair[1])
	}
	w.add(tokenizerKey, llamaTokenizer)
	w.add(preKey, "default")
	w.add(tokensKey, names)
	w.add(scoresKey, scores)
	w.add(typesKey, types)
	w.add(prefixKey, prefix)
	return nil
}

// onlyByPairs looks for two tokens whose text is a token, but which no merge joins.
func (w *writer) onlyByPairs(names []string, types []int32, merges [][2]string) (pair [2]string, found bool) {
	known := make(map[string]bool, len(names))
	for id, name := range names {
		known[name] = types[id] == normalToken
	}
	merged := make(map[[2]string]bool, len(merges))
	for _, p := range merges {
		merged[p] = true
	}
	for id, name := range names {
		if types[id] != normalToken {
			continue
		}
		for at := range name {
			if p := [2]string{name[:at], name[at:]}; at > 0 && known[p[0]] && known[p[1]] && !merged[p] {
				return p, true
			}
		}
	}
	return pair, false
}
