package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Parse reads a tokenizer.json.
func Parse(data []byte) (*Tokenizer, error) {
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("%d bytes are more than the %d that are supported", len(data), MaxFileBytes)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("invalid UTF-8")
	}
	var file settings
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	if v := file.text("version", "1.0"); v != "1.0" {
		return nil, fmt.Errorf("%w: version %s; 1.0 is known", ErrUnsupported, quote(v))
	}
	for _, name := range []string{"truncation", "padding"} {
		if file.has(name) {
			return nil, fmt.Errorf("%w: %s is set, which would cut or fill up every text; write null in its place", ErrUnsupported, name)
		}
	}
	t := &Tokenizer{chars: chars(), byName: make(map[string]int32), names: make(map[int32]string), special: make(map[string]bool)}
	if !file.has("model") {
		return nil, fmt.Errorf("%w: there is no \"model\"", ErrUnsupported)
	}
	_, kind, err := typed(file["model"])
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if kind != "BPE" {
		return nil, fmt.Errorf("%w: its model is %s; supported are BPE, and WordLevel of single characters (tokenizer = \"chars\")", ErrUnsupported, quote(kind))
	}
	if t.model, err = parseModel(file["model"]); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
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
	t.vocab = len(t.model.tokens)
	if err := t.parseAdded(file["added_tokens"]); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	t.model.prepare()
	t.cuts = t.canCut(pre)
	return t, nil
}

// settings is an object of the file.
type settings map[string]json.RawMessage

func (s settings) has(name string) bool {
	v := s[name]
	return len(v) > 0 && string(v) != "null"
}

// into reads a setting; an absent one leaves what is there.
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

// typed reads an object that has a type.
func typed(data json.RawMessage) (s settings, kind string, err error) {
	if err := json.Unmarshal(data, &s); err != nil || s == nil {
		return nil, "", fmt.Errorf("found %s where an object is needed", clip(data))
	}
	if !s.has("type") {
		return nil, "", fmt.Errorf("%w: it names no type", ErrUnsupported)
	}
	return s, s.text("type", ""), nil
}

func unknown(kind string) error { return fmt.Errorf("%w: the type %s", ErrUnsupported, quote(kind)) }

// elements are the parts of a Sequence.
func (s settings) elements(name string, depth int) ([]json.RawMessage, error) {
	var all []json.RawMessage
	if err := s.into(name, &all); err != nil {
		return nil, err
	}
	if len(all) > maxSteps || depth > maxSteps {
		return nil, fmt.Errorf("%w: a Sequence of %d, %d deep; %d are supported", ErrUnsupported, len(all), depth, maxSteps)
	}
	return all, nil
}

func parseModel(data json.RawMessage) (*model, error) {
	s, _, err := typed(data)
	if err != nil {
		return nil, err
	}
	m := &model{}
	var dropout float64
	var unk *string
	for _, o := range []struct {
		name string
		into any
	}{
		{"dropout", &dropout}, {"unk_token", &unk}, {"continuing_subword_prefix", &m.prefix}, {"end_of_word_suffix", &m.suffix},
		{"fuse_unk", &m.fuseUnk}, {"byte_fallback", &m.byteFallback}, {"ignore_merges", &m.ignoreMerges},
	} {
		if err := s.into(o.name, o.into); err != nil {
			return nil, err
		}
	}
	if dropout != 0 {
		return nil, fmt.Errorf("%w: dropout %g, which encodes at random; write null", ErrUnsupported, dropout)
	}
	ids, err := m.parseVocab(s["vocab"])
	if err != nil {
		return nil, err
	}
	if unk != nil {
		if m.unk, m.hasUnk = m.vocab[*unk]; !m.hasUnk {
			return nil, fmt.Errorf("unk_token %s is not in the vocabulary", quote(*unk))
		}
	}
	merges, err := parseMerges(s["merges"])
	if err != nil {
		return nil, err
	}
	m.merges = newPairTable(len(merges))
	const meta = '▁'
	breaks := ids && m.prefix == "" && m.suffix == "" && (unk == nil || !strings.HasSuffix(*unk, string(meta)))
	if _, ok := m.vocab[string(meta)]; !ok {
		breaks = false
	}
	for rank, pair := range merges {
		a, ok := m.vocab[pair[0]]
		b, also := m.vocab[pair[1]]
		for i, ok := range []bool{ok, also} {
			if !ok {
				return nil, fmt.Errorf("merge %d is of %s, which is not in the vocabulary", rank, quote(pair[i]))
			}
		}
		if len(pair[1]) < len(m.prefix) {
			return nil, fmt.Errorf("merge %d: %s is shorter than continuing_subword_prefix", rank, quote(pair[1]))
		}
		name := pair[0] + pair[1][len(m.prefix):]
		merged, ok := m.vocab[name]
		if !ok {
			return nil, fmt.Errorf("merge %d gives %s, which is not in the vocabulary", rank, quote(name))
		}
		m.merges.put(pairSlot{a, b, int32(rank), merged})
		if strings.HasPrefix(pair[1], string(meta)) && !strings.HasSuffix(pair[0], string(meta)) {
			breaks = false
		}
	}
	if breaks {
		m.breakAt = meta
	}
	return m, nil
}

// parseVocab reports whether each id has one token.
func (m *model) parseVocab(data json.RawMessage) (unique bool, err error) {
	if err := json.Unmarshal(data, &m.vocab); err != nil || m.vocab == nil {
		if tooLarge := (*json.UnmarshalTypeError)(nil); errors.As(err, &tooLarge) {
			return false, fmt.Errorf("vocab: an id is %s", tooLarge.Value)
		}
		return false, fmt.Errorf("vocab is %s", clip(data))
	}
	top := int32(-1)
	for name, id := range m.vocab {
		if id < 0 || id >= maxTokens {
			return false, fmt.Errorf("vocab: the id %d of %s is outside 0..%d", id, quote(name), maxTokens-1)
		}
		top = max(top, id)
	}
	// A file of one token may have a large id, but not make a table of gigabytes.
	m.tokens, m.has = make([]string, top+1), make([]bool, top+1)
	unique = true
	for name, id := range m.vocab {
		if m.has[id] {
			unique = false
			if m.tokens[id] > name { // which one the library decodes is left to chance
				continue
			}
		}
		m.tokens[id], m.has[id] = name, true
	}
	return unique, nil
}

// parseMerges reads pairs, or strings with a space between both.
func parseMerges(data json.RawMessage) ([][2]string, error) {
	var pairs [][]string
	if err := json.Unmarshal(data, &pairs); err == nil && pairs != nil {
		out := make([][2]string, len(pairs))
		for i, p := range pairs {
			if len(p) != 2 {
				return nil, fmt.Errorf("merge %d has %d tokens, not 2", i, len(p))
			}
			out[i] = [2]string(p)
		}
		return out, nil
	}
	var lines []string
	if err := json.Unmarshal(data, &lines); err != nil || lines == nil {
		if data == nil {
			data = json.RawMessage("null")
		}
		return nil, fmt.Errorf("merges is %s", clip(data))
	}
	var out [][2]string
	for _, line := range lines {
		if strings.HasPrefix(line, "#version") {
			continue
		}
		a, b, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(b, " ") {
			return nil, fmt.Errorf("merge %d, %s, is not two tokens with a space between them", len(out), quote(line))
		}
		out = append(out, [2]string{a, b})
	}
	return out, nil
}

// parseAdded reads the added tokens. One that the vocabulary has gets its id, others the next
// free ones, whatever the file says: so the library does it.
func (t *Tokenizer) parseAdded(data json.RawMessage) error {
	var all []struct {
		Content                             *string
		SingleWord                          bool `json:"single_word"`
		LStrip, RStrip, Normalized, Special bool
	}
	if len(data) > 0 {
		if err := json.Unmarshal(data, &all); err != nil {
			return fmt.Errorf("found %s: %w", clip(data), err)
		}
	}
	type entry struct {
		added
		normalized bool
	}
	byID := make(map[int32]entry)
	next := int64(len(t.model.vocab))
	for i, a := range all {
		if a.Content == nil {
			return fmt.Errorf("token %d has no content", i)
		}
		content := *a.Content
		if content == "" {
			continue
		}
		e := entry{added{content: content, singleWord: a.SingleWord, lstrip: a.LStrip, rstrip: a.RStrip, special: a.Special}, a.Normalized}
		id, ok := t.TokenID(content)
		if !ok {
			if next >= maxTokens {
				return fmt.Errorf("token %d gets the id %d, beyond %d", i, next, maxTokens-1)
			}
			id = int32(next)
			next++
		}
		e.id = id
		t.byName[content] = id
		t.special[content] = t.special[content] || a.Special
		byID[id] = e
		t.vocab = max(t.vocab, int(id)+1)
	}
	ids := make([]int32, 0, len(byID))
	for id := range byID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	w := &work{}
	for _, id := range ids {
		e := byID[id]
		name := e.content
		find := &t.raw
		if e.normalized {
			find = &t.normal
			name = string(t.normalize(w, []byte(name)))
			if w.err != nil {
				return w.err
			}
		}
		t.names[id] = name
		// By its name, as it is decoded and as it was written, it may be special or not.
		e.special = t.special[e.content]
		e.content = name
		if err := find.add(e.added); err != nil {
			return fmt.Errorf("the token %s: %w", quote(name), err)
		}
	}
	for name, special := range t.special {
		if !special {
			delete(t.special, name)
		}
	}
	return nil
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
	switch kind {
	case "NFC", "NFD", "NFKC", "NFKD":
		return one(&form{compose: strings.HasSuffix(kind, "C"), compatible: kind[2] == 'K', chars: t.chars})
	case "Lowercase":
		return one(lowercase{t.chars})
	case "Strip":
		n := stripSpace{chars: t.chars}
		if err := errors.Join(s.into("strip_left", &n.left), s.into("strip_right", &n.right)); err != nil {
			return nil, fmt.Errorf("Strip: %w", err)
		}
		return one(n)
	case "StripAccents":
		return one(eachChar(func(r rune) (rune, bool) { return r, t.chars.prop(r)&propMark == 0 }))
	case "Nmt":
		return one(eachChar(nmt))
	case "Prepend":
		var text string
		if err := s.into("prepend", &text); err != nil {
			return nil, fmt.Errorf("Prepend: %w", err)
		}
		return one(prepend(text))
	case "ByteLevel":
		return one(spellBytes{})
	case "Replace":
		n, err := parseReplace(s)
		if err != nil {
			return nil, fmt.Errorf("Replace: %w", err)
		}
		return one(n)
	case "Sequence":
		all, err := s.elements("normalizers", depth)
		if err != nil {
			return nil, err
		}
		var out []normalizer
		for i, e := range all {
			more, err := t.parseNormalizer(e, depth+1)
			if err != nil {
				return nil, fmt.Errorf("Sequence: part %d: %w", i, err)
			}
			if out = append(out, more...); len(out) > maxSteps {
				return nil, fmt.Errorf("%w: more than %d parts", ErrUnsupported, maxSteps)
			}
		}
		return out, nil
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
	return "", false, fmt.Errorf("pattern is %s; it has a String or a Regex", clip(s["pattern"]))
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
		return nil, fmt.Errorf("%w: an empty pattern", ErrUnsupported)
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

// pre is a part of splitting, and what is known about it.
type pre struct {
	step   step
	known  bool // a known pattern
	digits bool // splits numbers off, and nothing else
	spells bool // writes bytes as characters: the last one need not
}

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
			return nil, fmt.Errorf("Digits: %w", err)
		}
		return []pre{{digits: true, step: func(next part) part {
			return &alone{next: next, chars: t.chars, mask: propNumeric, runs: !each}
		}}}, nil
	case "Punctuation":
		b := isolated
		if err := s.into("behavior", &b); err != nil || !b.known() {
			return nil, fmt.Errorf("Punctuation: behavior is %s", clip(s["behavior"]))
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
			return nil, fmt.Errorf("CharDelimiterSplit: delimiter is %s", clip(s["delimiter"]))
		}
		return found(literal(c), removed)
	case "FixedLength":
		n := 5
		if err := s.into("length", &n); err != nil || n < 1 {
			return nil, fmt.Errorf("FixedLength: length is %s", clip(s["length"]))
		}
		return []pre{{step: func(next part) part { return &fixedLength{next, n} }}}, nil
	case "Sequence":
		all, err := s.elements("pretokenizers", depth)
		if err != nil {
			return nil, err
		}
		var out []pre
		for i, e := range all {
			more, err := t.parsePre(e, depth+1)
			if err != nil {
				return nil, fmt.Errorf("Sequence: part %d: %w", i, err)
			}
			if out = append(out, more...); len(out) > maxSteps {
				return nil, fmt.Errorf("%w: more than %d parts", ErrUnsupported, maxSteps)
			}
		}
		return out, nil
	}
	return nil, unknown(kind)
}

func (b behavior) known() bool {
	return slices.Contains([]behavior{isolated, removed, contiguous, toPrevious, toNext}, b)
}

func (t *Tokenizer) parseByteLevel(s settings) ([]pre, error) {
	prefix, regex := false, true
	if !s.has("add_prefix_space") {
		return nil, errors.New("ByteLevel: there is no add_prefix_space")
	}
	if err := errors.Join(s.into("add_prefix_space", &prefix), s.into("use_regex", &regex)); err != nil {
		return nil, fmt.Errorf("ByteLevel: %w", err)
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
		return nil, fmt.Errorf("Split: %w", err)
	}
	var invert bool
	if err := s.into("invert", &invert); err != nil {
		return nil, fmt.Errorf("Split: %w", err)
	}
	var b behavior
	if err := s.into("behavior", &b); err != nil || !b.known() {
		return nil, fmt.Errorf("Split: behavior is %s", clip(s["behavior"]))
	}
	// All of the known patterns' text is words: to isolate them, or to remove what is between
	// them, is the same.
	if known := knownPatterns[text]; regex && known != nil && (b == isolated || b == removed && invert) {
		return []pre{t.known(known)}, nil
	}
	if text == "" {
		return nil, fmt.Errorf("Split: %w: an empty pattern", ErrUnsupported)
	}
	var f finder = literal(text)
	if regex {
		if f, err = newPattern(text); err != nil {
			return nil, fmt.Errorf("Split: %w", err)
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
		return "", "", fmt.Errorf("replacement is %s", clip(s["replacement"]))
	}
	var prefix *bool
	if err := s.into("add_prefix_space", &prefix); err != nil {
		return "", "", err
	}
	if prefix != nil && !*prefix {
		if scheme != "never" && s.has("prepend_scheme") || !s.has("prepend_scheme") {
			return "", "", errors.New("add_prefix_space is false, but prepend_scheme is not never")
		}
	}
	if scheme != "always" && scheme != "first" && scheme != "never" {
		return "", "", fmt.Errorf("prepend_scheme is %s", clip(scheme))
	}
	return char, scheme, nil
}

func (t *Tokenizer) parseMetaspace(s settings) ([]pre, error) {
	char, scheme, err := parseMeta(s)
	if err != nil {
		return nil, fmt.Errorf("Metaspace: %w", err)
	}
	splits := true
	if err := s.into("split", &splits); err != nil {
		return nil, fmt.Errorf("Metaspace: %w", err)
	}
	if scheme == "first" {
		// The library asks where a piece was in the text, which these change.
		for _, n := range t.normalizers {
			switch n := n.(type) {
			case stripSpace, eachChar, replacePattern:
				return nil, fmt.Errorf("%w: Metaspace with prepend_scheme first behind a normalizer that may remove a text's beginning", ErrUnsupported)
			case replaceLiteral:
				if len(n.with) == 0 {
					return nil, fmt.Errorf("%w: Metaspace with prepend_scheme first behind a Replace by nothing", ErrUnsupported)
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
	if n := len(all); n > 0 && all[n-1].spells {
		t.model.bytes = true
		t.model.breakAt = 0
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

func parseIDs(data json.RawMessage) ([]int32, error) {
	var ids []int64
	if err := json.Unmarshal(data, &ids); err != nil {
		return nil, fmt.Errorf("ids is %s", clip(data))
	}
	out := make([]int32, len(ids))
	for i, id := range ids {
		if id < 0 || id > math.MaxInt32 {
			return nil, fmt.Errorf("the id %d", id)
		}
		out[i] = int32(id)
	}
	return out, nil
}

func parsePost(data json.RawMessage, depth int) ([]postPart, error) {
	if len(data) == 0 || string(data) == "null" {
		return nil, nil
	}
	s, kind, err := typed(data)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "ByteLevel": // places in the text alone
		return nil, nil
	case "TemplateProcessing":
		parts, err := parseTemplate(s)
		if err != nil {
			return nil, fmt.Errorf("TemplateProcessing: %w", err)
		}
		return parts, nil
	case "RobertaProcessing", "BertProcessing":
		ids := make([]postPart, 2)
		for i, name := range []string{"cls", "sep"} {
			var pair []json.RawMessage
			if err := s.into(name, &pair); err != nil || len(pair) != 2 {
				return nil, fmt.Errorf("%s: %s is %s", kind, name, clip(s[name]))
			}
			if ids[i].ids, err = parseIDs(slices.Concat([]byte("["), pair[1], []byte("]"))); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", kind, name, err)
			}
		}
		return []postPart{ids[0], {text: true}, ids[1]}, nil
	case "Sequence":
		all, err := s.elements("processors", depth)
		if err != nil {
			return nil, err
		}
		var out []postPart
		for i, e := range all {
			parts, err := parsePost(e, depth+1)
			if err != nil {
				return nil, fmt.Errorf("Sequence: part %d: %w", i, err)
			}
			if out != nil && parts != nil {
				return nil, fmt.Errorf("%w: a Sequence of two parts that add tokens", ErrUnsupported)
			}
			if parts != nil {
				out = parts
			}
		}
		return out, nil
	}
	return nil, unknown(kind)
}

func parseTemplate(s settings) ([]postPart, error) {
	var single []struct {
		SpecialToken *struct{ ID string }
		Sequence     *struct{ ID string }
	}
	var tokens map[string]struct{ IDs json.RawMessage }
	if err := errors.Join(s.into("single", &single), s.into("special_tokens", &tokens)); err != nil {
		return nil, err
	}
	if len(single) > maxSteps {
		return nil, fmt.Errorf("%w: a template of %d pieces", ErrUnsupported, len(single))
	}
	out := []postPart{}
	for i, p := range single {
		switch {
		case p.Sequence != nil && p.Sequence.ID == "A":
			out = append(out, postPart{text: true})
		case p.SpecialToken != nil:
			token, ok := tokens[p.SpecialToken.ID]
			if !ok {
				return nil, fmt.Errorf("special_tokens has no %s", quote(p.SpecialToken.ID))
			}
			ids, err := parseIDs(token.IDs)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", quote(p.SpecialToken.ID), err)
			}
			out = append(out, postPart{ids: ids})
		default:
			return nil, fmt.Errorf("piece %d of single is neither the sequence A nor a special token", i)
		}
	}
	return out, nil
}

func (t *Tokenizer) parseDecoder(data json.RawMessage, depth int) ([]decodeStep, error) {
	s, kind, err := typed(data)
	if err != nil {
		return nil, err
	}
	one := func(f decodeStep) ([]decodeStep, error) { return []decodeStep{f}, nil }
	switch kind {
	case "ByteLevel":
		return one(func(next decodePart) decodePart { return &bytesFromNames{next: next} })
	case "ByteFallback":
		return one(func(next decodePart) decodePart { return &byteFallback{next: next} })
	case "Fuse":
		return one(func(next decodePart) decodePart { return fuse{next} })
	case "Metaspace":
		char, scheme, err := parseMeta(s)
		if err != nil {
			return nil, fmt.Errorf("Metaspace: %w", err)
		}
		return one(func(next decodePart) decodePart {
			return &spaceFor{next: next, char: []byte(char), drop: scheme != "never"}
		})
	case "Replace":
		r, err := parseReplace(s)
		if err != nil {
			return nil, fmt.Errorf("Replace: %w", err)
		}
		return one(func(next decodePart) decodePart {
			w := &work{}
			return &wholeTokens{next: next, change: func(dst, token []byte) []byte { return r.apply(w, dst, token) }}
		})
	case "Strip":
		var char string
		var start, stop int
		if err := errors.Join(s.into("content", &char), s.into("start", &start), s.into("stop", &stop)); err != nil {
			return nil, fmt.Errorf("Strip: %w", err)
		}
		if utf8.RuneCountInString(char) != 1 || start < 0 || stop < 0 || stop > math.MaxInt16 {
			return nil, fmt.Errorf("Strip: content %s, start %d, stop %d", clip(s["content"]), start, stop)
		}
		return one(func(next decodePart) decodePart {
			return &stripChar{next: next, char: []byte(char), start: start, stop: stop}
		})
	case "BPEDecoder":
		suffix := "</w>"
		if err := s.into("suffix", &suffix); err != nil || suffix == "" {
			return nil, fmt.Errorf("BPEDecoder: suffix is %s", clip(s["suffix"]))
		}
		return one(func(next decodePart) decodePart { return &wordEnds{next: next, suffix: []byte(suffix)} })
	case "Sequence":
		all, err := s.elements("decoders", depth)
		if err != nil {
			return nil, err
		}
		var out []decodeStep
		for i, e := range all {
			more, err := t.parseDecoder(e, depth+1)
			if err != nil {
				return nil, fmt.Errorf("Sequence: part %d: %w", i, err)
			}
			if out = append(out, more...); len(out) > maxSteps {
				return nil, fmt.Errorf("%w: more than %d parts", ErrUnsupported, maxSteps)
			}
		}
		return out, nil
	}
	return nil, unknown(kind)
}
