package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// pre is a part of splitting, and what is known about it.
type pre struct {
	step   step
	known  bool // a known pattern
	digits bool // splits numbers off, and nothing else
	spells bool // writes bytes as characters: the last one need not
}

// preKeys are the settings of each part of splitting. trim_offsets has no effect on ids.
var preKeys = map[string][]string{
	"Whitespace": {}, "WhitespaceSplit": {}, "BertPreTokenizer": {},
	"ByteLevel":          {"add_prefix_space", "trim_offsets", "use_regex"},
	"Split":              {"pattern", "behavior", "invert"},
	"Metaspace":          metaKeys,
	"Digits":             {"individual_digits"},
	"Punctuation":        {"behavior"},
	"CharDelimiterSplit": {"delimiter"},
	"FixedLength":        {"length"},
}

// metaKeys are those of Metaspace. str_rep is what releases before 0.20 have written beside replacement.
var metaKeys = []string{"replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"}

func (t *Tokenizer) parsePre(data json.RawMessage, depth int) ([]pre, error) {
	if len(data) == 0 || string(data) == "null" {
		return nil, nil
	}
	s, kind, err := typed(data)
	if err != nil {
		return nil, err
	}
	found := func(f finder, b behavior) ([]pre, error) {
		return []pre{{step: func(next part) part { return &split{next: next, find: f, behavior: b} }}}, nil
	}
	if err := checked(preKeys, s, kind); err != nil {
		return nil, err
	}
	switch kind {
	case "ByteLevel":
		return t.parseByteLevel(s)
	case "Split":
		return t.parseSplit(s)
	case "Metaspace":
		return t.parseMetaspace(s)
	case "Digits":
		var each bool
		if err := s.into("individual_digits", &each); err != nil {
			return nil, within("Digits", err)
		}
		return []pre{{digits: true, step: func(next part) part {
			return &alone{next: next, chars: t.chars, mask: propNumeric, runs: !each}
		}}}, nil
	case "Punctuation":
		b := isolated
		if err := s.into("behavior", &b); err != nil || !b.known() {
			return nil, within("Punctuation", fmt.Errorf("unknown behavior %s", clip(s["behavior"])))
		}
		return found(having{t.chars, propPunct}, b)
	case "Whitespace":
		return []pre{{step: func(next part) part {
			return &split{next: next, find: wordsAndSigns{t.chars}, invert: true, behavior: removed}
		}}}, nil
	case "WhitespaceSplit":
		return found(having{t.chars, propSpace}, removed)
	case "BertPreTokenizer":
		a, _ := found(having{t.chars, propSpace}, removed)
		b, err := found(having{t.chars, propPunct}, isolated)
		return append(a, b...), err
	case "CharDelimiterSplit":
		var c string
		if err := s.into("delimiter", &c); err != nil || utf8.RuneCountInString(c) != 1 {
			return nil, within("CharDelimiterSplit", fmt.Errorf("impossible delimiter %s", clip(s["delimiter"])))
		}
		return found(literal(c), removed)
	case "FixedLength":
		n := 5
		if err := s.into("length", &n); err != nil || n < 1 {
			return nil, within("FixedLength", fmt.Errorf("impossible length %s", clip(s["length"])))
		}
		return []pre{{step: func(next part) part { return &fixedLength{next, n} }}}, nil
	case "Sequence":
		return sequence(s, "pretokenizers", depth, t.parsePre)
	}
	return nil, unknown(kind)
}

func (b behavior) known() bool {
	return slices.Contains([]behavior{isolated, removed, contiguous, toPrevious, toNext}, b)
}

func (t *Tokenizer) parseByteLevel(s settings) ([]pre, error) {
	prefix, regex := false, true
	if !s.has("add_prefix_space") {
		return nil, within("ByteLevel", errors.New("add_prefix_space is missing"))
	}
	if err := errors.Join(s.into("add_prefix_space", &prefix), s.into("use_regex", &regex)); err != nil {
		return nil, within("ByteLevel", err)
	}
	var out []pre
	if prefix {
		out = append(out, pre{step: func(next part) part { return &spaceBefore{next: next} }})
	}
	if regex {
		out = append(out, t.known(scanGPT2))
	}
	return append(out, pre{spells: true, step: func(next part) part { return &spelled{next: next} }}), nil
}

func (t *Tokenizer) known(s scanner) pre {
	return pre{known: true, step: func(next part) part { return &scan{next, t.chars, s} }}
}

func (t *Tokenizer) parseSplit(s settings) ([]pre, error) {
	text, regex, err := parsePattern(s)
	if err != nil {
		return nil, within("Split", err)
	}
	var invert bool
	if err := s.into("invert", &invert); err != nil {
		return nil, within("Split", err)
	}
	var b behavior
	if err := s.into("behavior", &b); err != nil || !b.known() {
		return nil, within("Split", fmt.Errorf("unknown behavior %s", clip(s["behavior"])))
	}
	// The matches of a known pattern cover the text: isolating them, or removing what is between
	// them, is the same.
	if known := knownPatterns[text]; regex && known != nil && (b == isolated || b == removed && invert) {
		return []pre{t.known(known)}, nil
	}
	if text == "" {
		return nil, within("Split", fmt.Errorf("%w: the pattern is empty", ErrUnsupported))
	}
	var f finder = literal(text)
	if regex {
		if f, err = newPattern(text); err != nil {
			return nil, within("Split", err)
		}
	}
	return []pre{{step: func(next part) part { return &split{next: next, find: f, invert: invert, behavior: b} }}}, nil
}

// meta reads the settings that the Metaspace of splitting and that of decoding share.
func parseMeta(s settings) (char, scheme string, err error) {
	scheme = "always"
	if err := errors.Join(s.into("replacement", &char), s.into("prepend_scheme", &scheme)); err != nil {
		return "", "", err
	}
	if utf8.RuneCountInString(char) != 1 {
		return "", "", fmt.Errorf("impossible replacement %s", clip(s["replacement"]))
	}
	var prefix *bool
	if err := s.into("add_prefix_space", &prefix); err != nil {
		return "", "", err
	}
	if prefix != nil && !*prefix {
		if scheme != "never" && s.has("prepend_scheme") || !s.has("prepend_scheme") {
			return "", "", errors.New("add_prefix_space is false, so prepend_scheme must be never")
		}
	}
	if scheme != "always" && scheme != "first" && scheme != "never" {
		return "", "", fmt.Errorf("unknown prepend_scheme %s", clip(scheme))
	}
	return char, scheme, nil
}

func (t *Tokenizer) parseMetaspace(s settings) ([]pre, error) {
	char, scheme, err := parseMeta(s)
	if err != nil {
		return nil, within("Metaspace", err)
	}
	splits := true
	if err := s.into("split", &splits); err != nil {
		return nil, within("Metaspace", err)
	}
	if scheme == "first" {
		// The library uses the position of a piece in the text, which these normalizers change. Precompiled
		// doesn't: there the library counts on as if nothing had been removed at the start.
		for _, n := range t.normalizers {
			switch n := n.(type) {
			case stripSpace, eachChar, replacePattern, spacedChinese:
				return nil, fmt.Errorf("%w: Metaspace with prepend_scheme first after a normalizer that may remove the start of a text", ErrUnsupported)
			case replaceLiteral:
				if len(n.with) == 0 {
					return nil, fmt.Errorf("%w: Metaspace with prepend_scheme first after a Replace with nothing", ErrUnsupported)
				}
			}
		}
	}
	return []pre{{step: func(next part) part {
		return &metaspace{next: next, with: []byte(char), always: scheme == "always", begin: scheme == "first", split: splits}
	}}}, nil
}

// join makes the steps of what was read. Where bytes are written as characters at the end
// alone, the model takes them as they are.
func (t *Tokenizer) join(all []pre) {
	if n := len(all); n > 0 && all[n-1].spells && t.bpe != nil {
		t.bpe.bytes = true
		t.bpe.breakAt = 0
		all = all[:n-1]
	}
	for _, p := range all {
		t.steps = append(t.steps, p.step)
	}
}

// canCut reports whether Cut's rules hold.
func (t *Tokenizer) canCut(all []pre) bool {
	known := 0
	for i, p := range all {
		switch {
		case p.known:
			known++
		case p.digits, p.spells && i == len(all)-1:
		default:
			return false
		}
	}
	if known == 0 {
		return false
	}
	for _, n := range t.normalizers {
		if f, ok := n.(*form); !ok || !f.compose || f.compatible {
			return false
		}
	}
	for _, f := range []*finding{&t.raw, &t.normal} {
		for _, a := range f.list {
			if a.singleWord || a.lstrip || a.rstrip || strings.Contains(a.content, "\n") {
				return false
			}
			for i := range len(a.content) {
				if i > 0 && a.content[i] == ' ' {
					if p, _ := t.chars.last([]byte(a.content[:i])); p&(propLetter|propNumber) != 0 {
						return false
					}
				}
			}
		}
	}
	return true
}
