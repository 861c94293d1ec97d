package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// Parse reads a tokenizer.json.
func Parse(data []byte) (*Tokenizer, error) {
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("it has %d bytes; the limit is %d", len(data), MaxFileBytes)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("it is not valid UTF-8")
	}
	var file settings
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("it is not a JSON object: %w", err)
	}
	if err := file.only("version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder",
		"model"); err != nil {
		return nil, err
	}
	if v := file.text("version", "1.0"); v != "1.0" {
		return nil, fmt.Errorf("%w: version %s, but only 1.0 is supported", ErrUnsupported, quote(v))
	}
	for _, name := range []string{"truncation", "padding"} {
		if file.has(name) {
			return nil, fmt.Errorf("%w: %s is set, which would truncate or pad every text: replace it with null", ErrUnsupported, name)
		}
	}
	t := &Tokenizer{chars: chars(), byName: make(map[string]int32), names: make(map[int32]string), special: make(map[string]bool)}
	if !file.has("model") {
		return nil, fmt.Errorf("%w: \"model\" is missing", ErrUnsupported)
	}
	if err := t.parseModel(file["model"]); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	var err error
	if t.normalizers, err = t.parseNormalizer(file["normalizer"], 0); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	pre, err := t.parsePre(file["pre_tokenizer"], 0)
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	t.join(pre)
	if t.post, err = parsePost(file["post_processor"], 0); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	if file.has("decoder") {
		if t.decoders, err = t.parseDecoder(file["decoder"], 0); err != nil {
			return nil, fmt.Errorf("decoder: %w", err)
		}
	} else {
		t.joined = true
	}
	t.vocab = len(t.tokens)
	if err := t.parseAdded(file["added_tokens"]); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	if t.bpe != nil {
		t.bpe.prepare()
	}
	t.cuts = t.canCut(pre)
	t.longest = t.longestToken()
	return t, nil
}

// modelKeys are the settings of each model.
var modelKeys = map[string][]string{
	"BPE": {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges", "vocab",
		"merges"},
	"Unigram":   {"unk_id", "vocab", "byte_fallback"},
	"WordPiece": {"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"},
}

func (t *Tokenizer) parseModel(data json.RawMessage) error {
	s, kind, err := typed(data)
	if err != nil {
		return err
	}
	if err := checked(modelKeys, s, kind); err != nil {
		return err
	}
	switch kind {
	case "BPE":
		if t.bpe, err = parseBPE(s); err == nil {
			t.model, t.vocabulary = t.bpe, &t.bpe.vocabulary
		}
	case "Unigram":
		var u *unigram
		if u, err = parseUnigram(s); err == nil {
			t.model, t.vocabulary = u, &u.vocabulary
		}
	case "WordPiece":
		var p *wordPiece
		if p, err = parseWordPiece(s); err == nil {
			t.model, t.vocabulary = p, &p.vocabulary
		}
	default:
		err = fmt.Errorf(
			"%w: the type is %s, but only BPE, Unigram, WordPiece, and WordLevel of single characters (tokenizer = \"chars\"), are supported",
			ErrUnsupported, quote(kind))
	}
	return err
}

// settings is a JSON object of the file.
type settings map[string]json.RawMessage

func (s settings) has(name string) bool {
	v := s[name]
	return len(v) > 0 && string(v) != "null"
}

// only refuses settings that have no meaning here: one that the library does not know may come from a later
// release, in which it changes ids.
func (s settings) only(names ...string) error {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if s.has(name) && name != "type" && !slices.Contains(names, name) {
			return fmt.Errorf("%w: unknown setting %s", ErrUnsupported, quote(name))
		}
	}
	return nil
}

// into reads a setting; an absent one leaves value unchanged.
func (s settings) into(name string, value any) error {
	if !s.has(name) {
		return nil
	}
	if err := json.Unmarshal(s[name], value); err != nil {
		return fmt.Errorf("%s is %s", name, clip(s[name]))
	}
	return nil
}

// text is a setting that is a string.
func (s settings) text(name, absent string) string {
	if !s.has(name) {
		return absent
	}
	var v string
	if err := json.Unmarshal(s[name], &v); err != nil {
		return clip(s[name])
	}
	return v
}

// typed reads an object with a type.
func typed(data json.RawMessage) (s settings, kind string, err error) {
	if err := json.Unmarshal(data, &s); err != nil || s == nil {
		return nil, "", fmt.Errorf("found %s where an object is needed", clip(data))
	}
	if !s.has("type") {
		return nil, "", fmt.Errorf("%w: the type is missing", ErrUnsupported)
	}
	return s, s.text("type", ""), nil
}

// within adds the part of the file to an error.
func within(part string, err error) error { return fmt.Errorf("%s: %w", part, err) }

func unknown(kind string) error {
	return fmt.Errorf("%w: unknown type %s", ErrUnsupported, quote(kind))
}

// elements are the parts of a Sequence.
func (s settings) elements(name string, depth int) ([]json.RawMessage, error) {
	var all []json.RawMessage
	if err := errors.Join(s.only(name), s.into(name, &all)); err != nil {
		return nil, within("Sequence", err)
	}
	if len(all) > maxSteps || depth > maxSteps {
		return nil, fmt.Errorf("%w: a Sequence has %d parts at depth %d; the limit is %d", ErrUnsupported, len(all), depth, maxSteps)
	}
	return all, nil
}

// sequence reads the parts of a Sequence, each of which may be several.
func sequence[T any](s settings, name string, depth int, parse func(data json.RawMessage, depth int) ([]T, error)) ([]T, error) {
	all, err := s.elements(name, depth)
	if err != nil {
		return nil, err
	}
	var out []T
	for i, e := range all {
		more, err := parse(e, depth+1)
		if err != nil {
			return nil, within(fmt.Sprintf("Sequence: part %d", i), err)
		}
		if out = append(out, more...); len(out) > maxSteps {
			return nil, fmt.Errorf("%w: the Sequence has more than %d parts", ErrUnsupported, maxSteps)
		}
	}
	return out, nil
}

// checked refuses settings that a part of a kind does not have. A kind that is missing is refused elsewhere.
func checked(keys map[string][]string, s settings, kind string) error {
	names, ok := keys[kind]
	if !ok {
		return nil
	}
	if err := s.only(names...); err != nil {
		return within(kind, err)
	}
	return nil
}
