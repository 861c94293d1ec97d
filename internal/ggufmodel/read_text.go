package ggufmodel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/gguf"
	"github.com/troupe-ml/troupe/internal/tokenizer/hf"
)

// maxMergeBytes bounds the work of finding the merges of SentencePiece's tokens: the sum of the squares of
// their lengths.
const maxMergeBytes = 1 << 30

// object is a JSON object to write.
type object = map[string]any

// readText returns the tokenizer's files of a model: tokenizer.json, tokenizer_config.json,
// chat_template.jinja and generation_config.json. Without a tokenizer there is none of them. It sets the ids of
// special tokens in config.json.
func readText(h *gguf.Header, config object) (files map[string][]byte, err error) {
	t := &textReader{header: h}
	defer func() { t.config(config) }()
	kind := t.text(tokenizerKey)
	if kind == "" || kind == noTokenizer || kind == "no_vocab" {
		return map[string][]byte{}, t.err
	}
	if kind != gpt2Tokenizer && kind != llamaTokenizer && kind != gemma4Tokenizer {
		return nil, fmt.Errorf("%w: %s is %q; Troupe reads %s, %s and %s", ErrUnsupported, tokenizerKey, kind, gpt2Tokenizer, llamaTokenizer,
			gemma4Tokenizer)
	}
	t.tokens(config["vocab_size"].(int))
	if t.err != nil {
		return nil, t.err
	}
	var all object
	if kind == gpt2Tokenizer {
		all, err = t.byteLevel()
	} else {
		all, err = t.sentencePiece()
	}
	if err != nil {
		return nil, err
	}
	return t.files(all)
}

// textReader reads the keys of a tokenizer.
type textReader struct {
	header *gguf.Header
	names  []string
	types  []int32
	err    error // the first
}

func (t *textReader) fail(key, format string, args ...any) {
	if t.err == nil {
		t.err = fmt.Errorf("%s is %w", key, fmt.Errorf(format, args...))
	}
}

// read returns a key's value if it has the type.
func read[T any](t *textReader, key string) (out T, ok bool) {
	v, there := t.header.Value(key)
	out, ok = v.(T)
	if there && !ok {
		t.fail(key, "a %T, but must be a %T", v, out)
	}
	return out, ok
}

func (t *textReader) text(key string) string {
	v, _ := read[string](t, key)
	return v
}

// id returns the id of a special token; false: there is none.
func (t *textReader) id(key string) (int32, bool) {
	v, ok := read[uint32](t, key)
	if !ok {
		return 0, false
	}
	if int64(v) >= int64(len(t.names)) {
		return 0, false // llama.cpp ignores such an id
	}
	return int32(v), true
}

// tokens reads the names and types of ids.
func (t *textReader) tokens(vocab int) {
	t.names, _ = read[[]string](t, tokensKey)
	if len(t.names) == 0 || len(t.names) > vocab {
		t.fail(tokensKey, "a list of %d tokens, but the model has %d", len(t.names), vocab)
		return
	}
	t.types, _ = read[[]int32](t, typesKey)
	if t.types == nil {
		t.types = slices.Repeat([]int32{normalToken}, len(t.names))
	}
	if len(t.types) != len(t.names) {
		t.fail(typesKey, "a list of %d, but there are %d tokens", len(t.types), len(t.names))
	}
}

// addedTokens returns the model's vocabulary and added_tokens.
func (t *textReader) addedTokens() (vocab map[string]int32, added []object, err error) {
	vocab, added = make(map[string]int32, len(t.names)), []object{}
	for id, name := range t.names {
		if t.types[id] == unusedToken && name == fmt.Sprintf("[PAD%d]", id) {
			continue
		}
		if other, twice := vocab[name]; twice {
			return nil, nil, fmt.Errorf("%s has the token %q twice, as %d and %d", tokensKey, clip(name), other, id)
		}
		vocab[name] = int32(id)
		if kind := t.types[id]; kind == controlToken || kind == userToken || kind == unknownToken {
			added = append(added, object{"id": id, "content": name, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
				"special": kind != userToken})
		}
	}
	return vocab, added, nil
}

func clip(text string) string {
	if len(text) > 60 {
		return strings.ToValidUTF8(text[:60], "") + "…"
	}
	return text
}

// post returns the post-processor that adds tokens to a text, or what a byte-level tokenizer has without.
func (t *textReader) post(otherwise any) any {
	var single, pair []object
	special := object{}
	token := func(id int32, kind int) object {
		name := t.names[id]
		special[name] = object{"id": name, "ids": []int32{id}, "tokens": []string{name}}
		return object{"SpecialToken": object{"id": name, "type_id": kind}}
	}
	sequence := func(name string, kind int) object { return object{"Sequence": object{"id": name, "type_id": kind}} }
	bos, hasBOS := t.id(specialKeys[0].key)
	eos, hasEOS := t.id(specialKeys[1].key)
	addBOS, set := read[bool](t, addBOSKey)
	if !set { // llama.cpp's default
		addBOS = t.text(tokenizerKey) != gpt2Tokenizer || slices.Contains(pres[2].names, t.text(preKey))
	}
	addEOS, _ := read[bool](t, addEOSKey)
	for i, name := range []string{"A", "B"} {
		var one []object
		if addBOS && hasBOS {
			one = append(one, token(bos, i))
		}
		one = append(one, sequence(name, i))
		if addEOS && hasEOS {
			one = append(one, token(eos, i))
		}
		if i == 0 {
			single = one
		}
		pair = append(pair, one...)
	}
	if len(single) == 1 {
		return otherwise
	}
	return object{"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}
}

// byteLevel returns the tokenizer.json of a byte-level tokenizer.
func (t *textReader) byteLevel() (object, error) {
	s, composed, err := preOf(t.text(preKey))
	if err != nil {
		return nil, err
	}
	vocab, added, err := t.addedTokens()
	if err != nil {
		return nil, err
	}
	merges, err := t.merges()
	if err != nil {
		return nil, err
	}
	asBytes := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	var steps []object
	if s.digits {
		steps = append(steps, object{"type": "Digits", "individual_digits": true})
	}
	if len(merges) > 0 && s.pattern != hf.PatternGPT2 {
		steps = append(steps, object{"type": "Split", "pattern": object{"Regex": s.pattern}, "behavior": "Isolated", "invert": false}, asBytes)
	} else {
		last := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": len(merges) > 0}
		steps = append(steps, last)
	}
	var pre any = steps[0]
	if len(steps) > 1 {
		pre = object{"type": "Sequence", "pretokenizers": steps}
	}
	if len(merges) == 0 { // the tokenizer of bytes
		steps = steps[len(steps)-1:]
		pre = steps[0]
	}
	var normalizer, post any
	if composed {
		normalizer = object{"type": "NFC"}
	}
	if len(merges) > 0 {
		post = asBytes
	}
	return object{"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": normalizer, "pre_tokenizer": pre,
		"post_processor": t.post(post), "decoder": asBytes,
		"model": object{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": s.ignore, "vocab": vocab, "merges": merges}}, nil
}

// merges reads the pairs of tokens.
func (t *textReader) merges() ([][2]string, error) {
	lines, ok := read[[]string](t, mergesKey)
	if !ok {
		t.fail(mergesKey, "missing")
		return nil, t.err
	}
	merges := make([][2]string, len(lines))
	for i, line := range lines {
		at := strings.IndexByte(line[min(1, len(line)):], ' ')
		if at < 0 {
			return nil, fmt.Errorf("%s: merge %d is %q, which is not two tokens with a space between them", mergesKey, i, clip(line))
		}
		merges[i] = [2]string{line[:at+1], line[at+2:]}
	}
	return merges, nil
}

// encode writes JSON as people read it: < is not escaped.
func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return text.Bytes(), err
}

// config sets the ids of special tokens in a config.json; null stands for none, since transformers has defaults.
func (t *textReader) config(config object) {
	for _, s := range specialKeys {
		if s.name != "bos" && s.name != "eos" && s.name != "pad" {
			continue
		}
		config[s.name+"_token_id"] = nil
		if id, ok := t.id(s.key); ok {
			config[s.name+"_token_id"] = id
		}
	}
}

// files returns a model's files for its tokenizer.json.
func (t *textReader) files(tokens object) (map[string][]byte, error) {
	config := object{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false}
	for _, s := range specialKeys {
		if id, ok := t.id(s.key); ok && s.name != "eot" {
			config[s.name+"_token"] = t.names[id]
		}
	}
	out := make(map[string][]byte)
	var ends []int32
	for _, key := range []string{specialKeys[1].key, specialKeys[len(specialKeys)-1].key} {
		if id, ok := t.id(key); ok && !slices.Contains(ends, id) {
			ends = append(ends, id)
		}
	}
	for id, name := range t.names { // as llama.cpp does
		if slices.Contains(endNames, name) && !slices.Contains(ends, int32(id)) {
			ends = append(ends, int32(id))
		}
	}
	generation := object{}
	if ends != nil {
		generation["eos_token_id"] = ends
	}
	var errs []error
	for name, content := range map[string]object{"tokenizer.json": tokens, "tokenizer_config.json": config,
		"generation_config.json": generation} {
		text, err := encode(content)
		errs = append(errs, err)
		if len(content) > 0 {
			out[name] = text
		}
	}
	if template := t.text(templateKey); template != "" {
		out["chat_template.jinja"] = []byte(template)
	}
	return out, errors.Join(append(errs, t.err)...)
}
