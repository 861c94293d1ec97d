package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// normalizerKeys are the settings of each normalizer.
var normalizerKeys = map[string][]string{
	"NFC": {}, "NFD": {}, "NFKC": {}, "NFKD": {}, "Lowercase": {}, "StripAccents": {}, "Nmt": {}, "ByteLevel": {},
	"Strip":          {"strip_left", "strip_right"},
	"Prepend":        {"prepend"},
	"Replace":        {"pattern", "content"},
	"BertNormalizer": {"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"},
	"Precompiled":    {"precompiled_charsmap"},
}

func (t *Tokenizer) parseNormalizer(data json.RawMessage, depth int) ([]normalizer, error) {
	if len(data) == 0 || string(data) == "null" {
		return nil, nil
	}
	s, kind, err := typed(data)
	if err != nil {
		return nil, err
	}
	one := func(n normalizer) ([]normalizer, error) { return []normalizer{n}, nil }
	if err := checked(normalizerKeys, s, kind); err != nil {
		return nil, err
	}
	switch kind {
	case "NFC", "NFD", "NFKC", "NFKD":
		return one(&form{compose: strings.HasSuffix(kind, "C"), compatible: kind[2] == 'K', chars: t.chars})
	case "Lowercase":
		return one(lowercase{t.chars})
	case "Strip":
		n := stripSpace{chars: t.chars}
		if err := errors.Join(s.into("strip_left", &n.left), s.into("strip_right", &n.right)); err != nil {
			return nil, within("Strip", err)
		}
		return one(n)
	case "StripAccents":
		return one(eachChar(func(r rune) (rune, bool) { return r, t.chars.prop(r)&propMark == 0 }))
	case "Nmt":
		return one(eachChar(nmt))
	case "Prepend":
		var text string
		if err := s.into("prepend", &text); err != nil {
			return nil, within("Prepend", err)
		}
		return one(prepend(text))
	case "ByteLevel":
		return one(spellBytes{})
	case "Replace":
		n, err := parseReplace(s)
		if err != nil {
			return nil, within("Replace", err)
		}
		return one(n)
	case "BertNormalizer":
		all, err := t.parseBert(s)
		if err != nil {
			return nil, within("BertNormalizer", err)
		}
		return all, nil
	case "Precompiled":
		n, err := parseCharsmap(s)
		if err != nil {
			return nil, within("Precompiled", err)
		}
		return one(n)
	case "Sequence":
		return sequence(s, "normalizers", depth, t.parseNormalizer)
	}
	return nil, unknown(kind)
}

// parsePattern reads {"String": …} or {"Regex": …}.
func parsePattern(s settings) (text string, regex bool, err error) {
	var p settings
	if err := s.into("pattern", &p); err != nil {
		return "", false, err
	}
	for _, name := range []string{"String", "Regex"} {
		if len(p) == 1 && p.has(name) {
			err := p.into(name, &text)
			return text, name == "Regex", err
		}
	}
	return "", false, fmt.Errorf("pattern is %s: it must have a String or a Regex", clip(s["pattern"]))
}

func parseReplace(s settings) (normalizer, error) {
	text, regex, err := parsePattern(s)
	if err != nil {
		return nil, err
	}
	var with string
	if err := s.into("content", &with); err != nil {
		return nil, err
	}
	if text == "" {
		return nil, fmt.Errorf("%w: the pattern is empty", ErrUnsupported)
	}
	if regex {
		p, err := newPattern(text)
		if err != nil {
			return nil, err
		}
		return replacePattern{p, []byte(with)}, nil
	}
	return replaceLiteral{[]byte(text), []byte(with)}, nil
}
