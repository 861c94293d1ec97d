package hf

import "bytes"

// The known patterns, as tokenizer.json has them. Each has a scanner that finds the same words many
// times faster.
const (
	patternGPT2  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternLlama = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// patternQwen35 is that of Qwen3.5: marks are letters.
	patternQwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// scanner returns the length of the first word of a text that is valid UTF-8 and not empty. All
// words together are the text.
type scanner func(t *table, text []byte) int

var knownPatterns = map[string]scanner{
	patternGPT2:   scanGPT2,
	patternLlama:  func(t *table, text []byte) int { return scanLlama(t, text, 3, propLetter) },
	patternQwen:   func(t *table, text []byte) int { return scanLlama(t, text, 1, propLetter) },
	patternQwen35: func(t *table, text []byte) int { return scanLlama(t, text, 1, propLetter|propMarks) },
	patternO200k:  scanO200k,
}

// run returns how many bytes, starting at at, have one of some properties; with want false, have
// none.
func (t *table) run(text []byte, at int, mask uint32, want bool) int {
	for at < len(text) {
		p, size := t.next(text[at:])
		if (p&mask != 0) != want {
			break
		}
		at += size
	}
	return at
}

const propsWord = propSpace | propLetter | propNumber

func scanGPT2(t *table, text []byte) int {
	if text[0] == '\'' {
		if n := contraction(text, false); n > 0 {
			return n
		}
	}
	at := 0
	if text[0] == ' ' && len(text) > 1 {
		at = 1
	}
	switch p, size := t.next(text[at:]); {
	case p&propLetter != 0:
		return t.run(text, at+size, propLetter, true)
	case p&propNumber != 0:
		return t.run(text, at+size, propNumber, true)
	case p&propSpace == 0:
		return t.run(text, at+size, propsWord, false)
	}
	return t.spaces(text, t.run(text, 0, propSpace, true))
}

// spaces matches \s+(?!\S)|\s+ for the white space up to end: all but the last, if there is more
// than one and something follows.
func (t *table) spaces(text []byte, end int) int {
	if end == len(text) {
		return end
	}
	if _, size := t.last(text[:end]); size < end {
		return end - size
	}
	return end
}

// scanLlama implements the pattern of cl100k, Llama 3, OLMo 2, Phi-4 and Qwen, which differ in how many
// digits form a word and in what counts as a letter.
func scanLlama(t *table, text []byte, digits int, letters uint32) int {
	if text[0] == '\'' {
		if n := contraction(text, true); n > 0 {
			return n
		}
	}
	p, size := t.next(text)
	if p&letters != 0 {
		return t.run(text, size, letters, true)
	}
	if p&propNumber != 0 {
		return t.number(text, size, digits)
	}
	var second uint32
	more := 0
	if size < len(text) {
		second, more = t.next(text[size:])
	}
	words := letters | propSpace | propNumber
	newline := text[0] == '\r' || text[0] == '\n'
	if more > 0 && !newline && second&letters != 0 {
		return t.run(text, size+more, letters, true)
	}
	if p&propSpace == 0 || text[0] == ' ' && more > 0 && second&words == 0 {
		at := t.run(text, size, words, false)
		for at < len(text) && (text[at] == '\r' || text[at] == '\n') {
			at++
		}
		return at
	}
	return t.blank(text, size)
}

// number matches \p{N}{1,digits}, whose first character ends at at.
func (t *table) number(text []byte, at, digits int) int {
	for n := 1; n < digits && at < len(text); n++ {
		p, size := t.next(text[at:])
		if p&propNumber == 0 {
			break
		}
		at += size
	}
	return at
}

// blank matches \s*[\r\n]+|\s+(?!\S)|\s+ for white space whose first character ends at at.
func (t *table) blank(text []byte, at int) int {
	end := t.run(text, at, propSpace, true)
	if last := bytes.LastIndexAny(text[:end], "\r\n"); last >= 0 {
		return last + 1
	}
	return t.spaces(text, end)
}

// contraction is the length of 's, 't, 're, 've, 'm, 'll or 'd at the beginning. Where case
// doesn't count, ſ is an s.
func contraction(text []byte, fold bool) int {
	letter := func(at int) byte {
		if at >= len(text) {
			return 0
		}
		if b := text[at]; fold && b >= 'A' && b <= 'Z' {
			return b + 'a' - 'A'
		}
		return text[at]
	}
	switch letter(1) {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if letter(2) == 'e' {
			return 3
		}
	case 'l':
		if letter(2) == 'l' {
			return 3
		}
	case 0xC5: // ſ is C5 BF
		if fold && letter(2) == 0xBF {
			return 3
		}
	}
	return 0
}
