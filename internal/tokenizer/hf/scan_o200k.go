package hf

// patternO200k is the pattern of GPT-4o, GPT-OSS, Phi-4-mini and Llama 4. A word is some upper case
// letters and then some lower case ones; letters without case and marks are both.
const patternO200k = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
	`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// scanO200k implements patternO200k.
func scanO200k(t *table, text []byte) int {
	p, size := t.next(text)
	if p&propNumber != 0 {
		return t.number(text, size, 3)
	}
	newline := text[0] == '\r' || text[0] == '\n'
	if p&propLetter == 0 && !newline && size < len(text) {
		// The character is in front of a word.
		if second, _ := t.next(text[size:]); second&(propUpper|propLower) != 0 {
			if n := t.cased(text, size); n > 0 {
				return n
			}
			if p&propMarks == 0 {
				return contracted(text, t.run(text, size, propUpper, true))
			}
		}
	}
	if p&(propUpper|propLower) != 0 {
		if n := t.cased(text, 0); n > 0 {
			return n
		}
		return contracted(text, t.run(text, 0, propUpper, true))
	}
	signs := 0 // where [^\s\p{L}\p{N}]+ begins, if p is a space
	if text[0] == ' ' && size < len(text) {
		if second, _ := t.next(text[size:]); second&propsWord == 0 {
			signs = size
		}
	}
	if p&propSpace == 0 || signs > 0 {
		at := t.run(text, signs, propsWord, false)
		for at < len(text) && (text[at] == '\r' || text[at] == '\n' || text[at] == '/') {
			at++
		}
		return at
	}
	return t.blank(text, size)
}

// cased matches the upper case letters, the lower case letters and the contraction of a word that
// starts at at; 0: there is no lower case letter.
func (t *table) cased(text []byte, at int) int {
	end := t.run(text, at, propUpper, true)
	if low := t.run(text, end, propLower, true); low > end {
		return contracted(text, low)
	}
	// The pattern gives upper case letters back until one is also a lower case one. It is the last.
	for end > at {
		p, size := t.last(text[at:end])
		if p&propLower != 0 {
			return contracted(text, end)
		}
		end -= size
	}
	return 0
}

// contracted adds the contraction at end, if there is one.
func contracted(text []byte, end int) int {
	if end < len(text) && text[end] == '\'' {
		return end + contraction(text[end:], true)
	}
	return end
}
