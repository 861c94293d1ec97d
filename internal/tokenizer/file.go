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

// MaxFileBytes is the size of the largest tokenizer.json that Unmarshal reads.
const MaxFileBytes = hf.MaxFileBytes

// maxSettings limits the members of the file and of its model. Both kinds have about a dozen.
const maxSettings = 100

// The files of Bytes and Chars, without their vocabulary. Unmarshal recognizes them as Marshal
// writes them, and as the tokenizers library saves them again. Any other setting would change the
// ids.
//
// bytesFile: byte-level BPE without merges, whose ids follow the vocabulary's order. charsFile: the
// tokenizers library has no model of characters, so the text is split around every character, and
// words of one character are looked up. Like Chars, the library fails on an unknown character,
// because the unk_token is not a character.
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

// Marshal returns a tokenizer.json. For an *HF it is the file from which it was read.
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
		return nil, fmt.Errorf("%w: %T cannot be written as tokenizer.json", ErrUnsupported, tok)
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

// Unmarshal reads a tokenizer.json, including those that Marshal wrote for Bytes or *Chars. A part
// that can't be computed exactly as in the tokenizers library is an ErrUnsupported that names it.
func Unmarshal(data []byte) (Tokenizer, error) {
	tok, err := unmarshal(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	return tok, nil
}

func unmarshal(data []byte) (Tokenizer, error) {
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("it has %d bytes; the limit is %d", len(data), MaxFileBytes)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("it is not valid UTF-8")
	}
	if !json.Valid(data) {
		// Unlike Valid, Unmarshal says where and why.
		var ignored json.RawMessage
		return nil, fmt.Errorf("it is not valid JSON: %w", json.Unmarshal(data, &ignored))
	}
	file, err := members(data, maxSettings)
	if err != nil {
		return nil, err
	}
	modelJSON := find(file, "model")
	if modelJSON == nil {
		return nil, fmt.Errorf("%w: \"model\" is missing", ErrUnsupported)
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

// maxBytesVocab exceeds the size of the vocabulary of Bytes, in any notation.
const maxBytesVocab = 1 << 16

// onlyVocab checks that a file equals the expected one except for its vocabulary, and returns the
// words by id, at most limit.
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
			return nil, fmt.Errorf("model.vocab: the id %d of %s is already used or outside 0 to %d: ids must number the words without gaps", id,
				quote(m.name),
				len(vocab)-1)
		}
		words[id], used[id] = m.name, true
	}
	return words, nil
}

// compare requires got to have the members of want, except for the value of one member. A member
// that is null may be absent.
func compare(got, want []member, except, where string) error {
	for _, m := range got {
		if find(want, m.name) == nil {
			return fmt.Errorf("%w: unknown setting %s", ErrUnsupported, clip(where+m.name))
		}
	}
	for _, m := range want {
		value := find(got, m.name)
		if m.name == except {
			if value == nil {
				return fmt.Errorf("%w: %s%s is missing", ErrUnsupported, where, m.name)
			}
			continue
		}
		if value == nil {
			value = json.RawMessage("null")
		}
		if !same(value, m.value) {
			return fmt.Errorf("%w: %s%s is %s, but only %s is supported", ErrUnsupported, where, m.name, clip(value), clip(m.value))
		}
	}
	return nil
}

// byteWords returns the spelling of each byte as a character in byte-level BPE: printable ones as
// themselves, the others as the characters from U+0100 on, in order.
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

// readBytes reports whether words are the bytes, in order.
func readBytes(words []string) bool { return slices.Equal(words, byteWords()) }

func readChars(words []string) (Tokenizer, error) {
	if len(words) == 0 {
		return nil, errors.New("model.vocab is empty")
	}
	runes := make([]rune, len(words))
	for id, word := range words {
		r, size := utf8.DecodeRuneInString(word)
		if size == 0 || size != len(word) || invalid(r, size) {
			return nil, fmt.Errorf("%w: the vocabulary has words: id %d is %s, but only single characters are supported", ErrUnsupported, id,
				quote(word))
		}
		runes[id] = r
	}
	return newChars(runes), nil
}
