package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/troupe-ml/troupe/internal/tokenizer/hf"
)

// MaxFileBytes is the longest tokenizer.json that Unmarshal looks at.
const MaxFileBytes = hf.MaxFileBytes

// maxSettings bounds the members of the file and of its model. Either kind has a
// dozen.
const maxSettings = 100

// The files of Bytes and Chars, without their vocabulary. What Unmarshal takes for one of
// them is what Marshal writes and what the tokenizers library makes of that when it saves it
// again; any other setting would change the ids.
//
// bytesFile: byte-level BPE that merges nothing has the vocabulary's order for
// its ids. charsFile: the tokenizers library has no model of characters, so the
// text is split around every one, and words of one character are looked up. The
// library fails on an unknown character as Chars does, because its unk_token is
// no character.
const (
	bytesFile = `{
		"version": "1.0",
		"truncation": null,
		"padding": null,
		"added_tokens": [],
		"normalizer": null,
		"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
		"post_processor": null,
		"decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
		"model": {
			"type": "BPE",
			"dropout": null,
			"unk_token": null,
			"continuing_subword_prefix": null,
			"end_of_word_suffix": null,
			"fuse_unk": false,
			"byte_fallback": false,
			"ignore_merges": false,
			"merges": [],
			"vocab": {VOCAB}
		}
	}`
	charsFile = `{
		"version": "1.0",
		"truncation": null,
		"padding": null,
		"added_tokens": [],
		"normalizer": null,
		"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated", "invert": false},
		"post_processor": null,
		"decoder": {"type": "Fuse"},
		"model": {
			"type": "WordLevel",
			"unk_token": "<unk>",
			"vocab": {VOCAB}
		}
	}`
	vocabMark = "VOCAB"
)

// Marshal returns a tokenizer.json: that of an *HF is the one that it was read from.
func Marshal(tok Tokenizer) ([]byte, error) {
	var file string
	var words []string // by id
	switch tok := tok.(type) {
	case *HF:
		return bytes.Clone(tok.file), nil
	case Bytes:
		file, words = bytesFile, byteWords()
	case *Chars:
		file = charsFile
		for _, r := range tok.runes {
			words = append(words, string(r))
		}
	default:
		return nil, fmt.Errorf("%w: %T can't be written as tokenizer.json", ErrUnsupported, tok)
	}
	var vocab strings.Builder
	for id, word := range words {
		if id > 0 {
			vocab.WriteByte(',')
		}
		name, err := json.Marshal(word)
		if err != nil {
			return nil, fmt.Errorf("tokenizer.json: %w", err)
		}
		fmt.Fprintf(&vocab, "%s: %d", name, id)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, []byte(strings.Replace(file, vocabMark, vocab.String(), 1)), "", "  "); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// Unmarshal reads a tokenizer.json, also one that Marshal wrote of Bytes or *Chars. A part
// that can't be done as the tokenizers library does it is an ErrUnsupported that names it.
func Unmarshal(data []byte) (Tokenizer, error) {
	tok, err := unmarshal(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	return tok, nil
}

func unmarshal(data []byte) (Tokenizer, error) {
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("%d bytes are more than the %d that are supported", len(data), MaxFileBytes)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("invalid UTF-8")
	}
	if !json.Valid(data) {
		// Unmarshal says where and why, which Valid does not.
		var ignored json.RawMessage
		return nil, fmt.Errorf("not valid JSON: %w", json.Unmarshal(data, &ignored))
	}
	file, err := members(data, maxSettings)
	if err != nil {
		return nil, err
	}
	modelJSON := find(file, "model")
	if modelJSON == nil {
		return nil, fmt.Errorf("%w: there is no \"model\"", ErrUnsupported)
	}
	model, err := members(modelJSON, maxSettings)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	switch kind := find(model, "type"); string(kind) {
	case `"BPE"`:
		if len(find(model, "vocab")) <= maxBytesVocab {
			if vocab, err := onlyVocab(file, model, bytesFile, Bytes{}.Vocab()); err == nil && readBytes(vocab) {
				return Bytes{}, nil
			}
		}
		return newHF(data)
	case `"WordLevel"`:
		vocab, err := onlyVocab(file, model, charsFile, MaxChars)
		if err != nil {
			return nil, fmt.Errorf("a WordLevel tokenizer: %w", err)
		}
		return readChars(vocab)
	default:
		return newHF(data)
	}
}

// maxBytesVocab is more than the vocabulary of Bytes takes, however it is written.
const maxBytesVocab = 1 << 16

// onlyVocab checks that a file differs from the expected one in nothing but its
// vocabulary, and returns that: the words by id, at most limit.
func onlyVocab(file, model []member, expected string, limit int) ([]string, error) {
	wantFile, err := members([]byte(strings.Replace(expected, vocabMark, "", 1)), maxSettings)
	if err != nil {
		return nil, err
	}
	wantModel, err := members(find(wantFile, "model"), maxSettings)
	if err != nil {
		return nil, err
	}
	if err := compare(file, wantFile, "model", ""); err != nil {
		return nil, err
	}
	if err := compare(model, wantModel, "vocab", "model."); err != nil {
		return nil, err
	}
	vocab, err := members(find(model, "vocab"), limit)
	if err != nil {
		return nil, fmt.Errorf("model.vocab: %w", err)
	}
	words := make([]string, len(vocab))
	used := make([]bool, len(vocab))
	for _, m := range vocab {
		var id int
		if err := json.Unmarshal(m.value, &id); err != nil {
			return nil, fmt.Errorf("model.vocab: the id of %s is %s", quote(m.name), clip(m.value))
		}
		if id < 0 || id >= len(vocab) || used[id] {
			return nil, fmt.Errorf("model.vocab: the id %d of %s is taken or outside 0..%d: ids number the words without a gap", id, quote(m.name),
				len(vocab)-1)
		}
		words[id], used[id] = m.name, true
	}
	return words, nil
}

// compare requires the members of got to be those of want, but for the value of
// one. A member that is null may be absent.
func compare(got, want []member, except, where string) error {
	for _, m := range got {
		if find(want, m.name) == nil {
			return fmt.Errorf("%w: the setting %s is unknown", ErrUnsupported, clip(where+m.name))
		}
	}
	for _, m := range want {
		value := find(got, m.name)
		if m.name == except {
			if value == nil {
				return fmt.Errorf("%w: there is no %s%s", ErrUnsupported, where, m.name)
			}
			continue
		}
		if value == nil {
			value = json.RawMessage("null")
		}
		if !same(value, m.value) {
			return fmt.Errorf("%w: %s%s is %s; supported is only %s", ErrUnsupported, where, m.name, clip(value), clip(m.value))
		}
	}
	return nil
}

// byteWords returns how byte-level BPE spells each byte as a character:
// printable ones as themselves, the others as the characters from U+0100 on, in
// order.
func byteWords() []string {
	words := make([]string, 256)
	next := rune(256)
	for b := range rune(256) {
		r := b
		if printable := '!' <= b && b <= '~' || '¡' <= b && b <= '¬' || '®' <= b; !printable {
			r = next
			next++
		}
		words[b] = string(r)
	}
	return words
}

// readBytes reports whether words are the bytes, in their order.
func readBytes(words []string) bool { return slices.Equal(words, byteWords()) }

func readChars(words []string) (Tokenizer, error) {
	if len(words) == 0 {
		return nil, errors.New("model.vocab is empty")
	}
	runes := make([]rune, len(words))
	for id, word := range words {
		r, size := utf8.DecodeRuneInString(word)
		if size == 0 || size != len(word) || invalid(r, size) {
			return nil, fmt.Errorf("%w: a vocabulary of words: id %d is %s; supported are only single characters", ErrUnsupported, id, quote(word))
		}
		runes[id] = r
	}
	return newChars(runes), nil
}
