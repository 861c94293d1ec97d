package ggufmodel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// The keys of a tokenizer.
const (
	tokenizerKey = "tokenizer.ggml.model"
	preKey       = "tokenizer.ggml.pre"
	tokensKey    = "tokenizer.ggml.tokens"
	typesKey     = "tokenizer.ggml.token_type"
	scoresKey    = "tokenizer.ggml.scores"
	mergesKey    = "tokenizer.ggml.merges"
	prefixKey    = "tokenizer.ggml.add_space_prefix"
	addBOSKey    = "tokenizer.ggml.add_bos_token"
	addEOSKey    = "tokenizer.ggml.add_eos_token"
	templateKey  = "tokenizer.chat_template"
)

// The types of tokens.
const (
	normalToken  = 1
	unknownToken = 2
	controlToken = 3
	userToken    = 4
	unusedToken  = 5
	byteToken    = 6
)

const (
	gpt2Tokenizer  = "gpt2"
	llamaTokenizer = "llama"
	// gemma4Tokenizer is SentencePiece's BPE with merges.
	gemma4Tokenizer = "gemma4"
	noTokenizer     = "none"
	meta            = "▁"
)

// Text is how a model reads and writes text.
type Text struct {
	Tokenizer tokenizer.Tokenizer // nil: not known
	// Special has the ids of special tokens by the names "bos", "eos", "unk", "sep", "pad", "cls" and
	// "mask".
	Special map[string]int32
	// Ends are all ids at which generation stops.
	Ends []int32
	// Before and After are the ids that the tokenizer adds to a text.
	Before, After []int32
	Template      string // the chat template
}

// specialKeys are the names of Text.Special in the order of the file, with their keys.
var specialKeys = []struct{ name, key string }{
	{"bos", "tokenizer.ggml.bos_token_id"}, {"eos", "tokenizer.ggml.eos_token_id"}, {"unk", "tokenizer.ggml.unknown_token_id"},
	{"sep", "tokenizer.ggml.seperator_token_id"}, {"pad", "tokenizer.ggml.padding_token_id"}, {"cls", "tokenizer.ggml.cls_token_id"},
	{"mask", "tokenizer.ggml.mask_token_id"}, {"eot", "tokenizer.ggml.eot_token_id"},
}

// endNames are the tokens that llama.cpp stops at because of their names.
var endNames = []string{"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>",
	"<|end_of_text|>", "<eos>", "<|return|>", "<|call|>"}

// text writes the tokenizer and the chat template.
func (w *writer) text(t Text, vocab int) error {
	if t.Tokenizer == nil {
		w.add(tokenizerKey, noTokenizer)
		if !w.arch.vocab {
			w.own("vocab_size", uint32(vocab))
		}
		w.warn("the model has no tokenizer: llama.cpp can use it with token ids only")
		return nil
	}
	if t.Tokenizer.Vocab() > vocab {
		return fmt.Errorf("the tokenizer has %d ids, but the model has %d", t.Tokenizer.Vocab(), vocab)
	}
	text, err := tokenizer.Marshal(t.Tokenizer)
	if err != nil {
		return err
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("tokenizer.json: %w", err)
	}
	if f.Model.Type != "BPE" {
		return fmt.Errorf("%w: a tokenizer of type %s cannot be written as GGUF; train the model with byte-level BPE (engine tokenize train) or with data.tokenizer = \"bytes\"",
			ErrUnsupported, f.Model.Type)
	}
	merges, err := f.merges()
	if err != nil {
		return err
	}
	write := w.byteLevel
	if f.sentencePiece() {
		write = w.sentencePiece
	}
	if err := write(t, &f, merges, vocab); err != nil {
		return err
	}
	w.special(t)
	return nil
}

// merges reads the pairs, which are lists of two tokens or strings with a space between both.
func (f *file) merges() (pairs [][2]string, err error) {
	if json.Unmarshal(f.Model.Merges, &pairs) == nil {
		return pairs, nil
	}
	var lines []string
	if err := json.Unmarshal(f.Model.Merges, &lines); err != nil {
		return nil, fmt.Errorf("tokenizer.json: merges: %w", err)
	}
	for _, line := range lines {
		if a, b, ok := strings.Cut(line, " "); ok && !strings.HasPrefix(line, "#version") {
			pairs = append(pairs, [2]string{a, b})
		}
	}
	return pairs, nil
}

// byteLevel writes a byte-level tokenizer.
func (w *writer) byteLevel(t Text, f *file, merges [][2]string, vocab int) error {
	s, err := f.split()
	if err != nil {
		return err
	}
	composed := false
	for _, n := range f.Normalizer.flat() {
		if n.Type != "NFC" {
			return fmt.Errorf("%w: the normalizer of tokenizer.json has the part %s, which llama.cpp does not have", ErrUnsupported, n.Type)
		}
		composed = true
	}
	if s.pattern == "" && len(merges) > 0 {
		return fmt.Errorf("%w: the tokenizer does not split texts into words, which llama.cpp always does", ErrUnsupported)
	}
	pre, err := preName(s, composed)
	if err != nil {
		return err
	}
	names, types := f.tokens(t.Tokenizer, vocab)
	w.add(tokenizerKey, gpt2Tokenizer)
	w.add(preKey, pre)
	w.add(tokensKey, names)
	w.add(typesKey, types)
	w.add(mergesKey, joined(merges))
	return nil
}

// joined returns merges as GGUF has them.
func joined(merges [][2]string) []string {
	lines := make([]string, len(merges))
	for i, pair := range merges {
		lines[i] = pair[0] + " " + pair[1]
	}
	return lines
}

// tokens returns the names and types of all ids. An id without a token is an unused one.
func (f *file) tokens(t tokenizer.Tokenizer, vocab int) (names []string, types []int32) {
	added := make(map[string]bool, len(f.Added))
	for _, a := range f.Added {
		added[a.Content] = true
	}
	for id := range int32(vocab) {
		name, ok := t.Token(id)
		kind := int32(normalToken)
		switch {
		case !ok:
			name, kind = fmt.Sprintf("[PAD%d]", id), unusedToken
		case added[name] && (t.IsSpecial(id) || looksSpecial(name)):
			kind = controlToken
		case added[name]:
			name, kind = strings.ReplaceAll(name, meta, " "), userToken
		}
		names, types = append(names, name), append(types, kind)
	}
	return names, types
}

// looksSpecial reports whether llama.cpp's converter takes an added token for a special one.
func looksSpecial(name string) bool {
	return slices.Contains([]string{"<pad>", "<mask>", "<2mass>", "[@BOS@]"}, name) ||
		strings.HasPrefix(name, "<|") && strings.HasSuffix(name, "|>") || strings.HasPrefix(name, "<｜") && strings.HasSuffix(name, "｜>") ||
		strings.HasPrefix(name, "<unused") && strings.HasSuffix(name, ">")
}

// special writes the ids of special tokens, and what is added to a text.
func (w *writer) special(t Text) {
	ids := make(map[string]int32, len(t.Special))
	for name, id := range t.Special {
		ids[name] = id
	}
	for _, one := range []struct {
		name string
		ids  []int32
		at   int
	}{{"bos", t.Before, 0}, {"eos", t.After, max(0, len(t.After)-1)}} {
		if _, ok := ids[one.name]; !ok && len(one.ids) > 0 {
			ids[one.name] = one.ids[one.at]
		}
	}
	if _, ok := ids["eos"]; !ok && len(t.Ends) > 0 {
		ids["eos"] = t.Ends[0]
	}
	var further []int32 // ends that llama.cpp would not know
	for _, id := range t.Ends {
		name, _ := t.Tokenizer.Token(id)
		if id != ids["eos"] && !slices.Contains(endNames, name) {
			further = append(further, id)
		}
	}
	if len(further) > 0 {
		ids["eot"] = further[0]
	}
	if len(further) > 1 {
		w.warn("generation stops at %d tokens, but a GGUF file has a place for two whose names llama.cpp does not know: it will not stop at the ids %d",
			len(t.Ends), further[1:])
	}
	for _, s := range specialKeys {
		if id, ok := ids[s.name]; ok {
			w.add(s.key, uint32(id))
		}
	}
	is := func(all []int32, name string) bool {
		id, ok := ids[name]
		return len(all) == 1 && ok && all[0] == id
	}
	for _, one := range []struct {
		key, name, where string
		ids              []int32
	}{{addBOSKey, "bos", "before", t.Before}, {addEOSKey, "eos", "after", t.After}} {
		w.add(one.key, is(one.ids, one.name))
		if len(one.ids) > 0 && !is(one.ids, one.name) {
			w.warn("the tokenizer adds the ids %d %s a text, but llama.cpp can add only the %s_token", one.ids, one.where, one.name)
		}
	}
	if t.Template != "" {
		w.add(templateKey, t.Template)
	}
}
