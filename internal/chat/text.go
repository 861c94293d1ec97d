package chat

import (
	"strings"
	"unicode"
)

// upper is str.upper.
func upper(s string) string { return mapped(s, upperCases, unicode.ToUpper) }

func mapped(s string, special map[rune]string, one func(rune) rune) string {
	var b strings.Builder
	for _, r := range s {
		if text, ok := special[r]; ok {
			b.WriteString(text)
		} else {
			b.WriteRune(one(r))
		}
	}
	return b.String()
}

// lower is str.lower: a sigma that ends a word is another letter.
func lower(s string) string {
	var b strings.Builder
	runes := []rune(s)
	for i, r := range runes {
		switch {
		case r == 'Σ' && endsWord(runes, i):
			b.WriteRune('ς')
		case r == 'İ':
			b.WriteString("i̇")
		default:
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

// endsWord reports whether a letter has one before it in its word, and none after it.
func endsWord(runes []rune, at int) bool {
	before, after := at-1, at+1
	for before >= 0 && ignorable(runes[before]) {
		before--
	}
	for after < len(runes) && ignorable(runes[after]) {
		after++
	}
	return before >= 0 && cased(runes[before]) && (after >= len(runes) || !cased(runes[after]))
}

func cased(r rune) bool {
	return unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Lowercase, unicode.Other_Uppercase)
}

func ignorable(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) || strings.ContainsRune("'.:··՟״‧︓﹕：’․﹒＇．", r)
}

func isUpper(r rune) bool { return unicode.In(r, unicode.Lu, unicode.Lt, unicode.Other_Uppercase) }
func isLower(r rune) bool { return unicode.In(r, unicode.Ll, unicode.Other_Lowercase) }

// capitalize is str.capitalize.
func capitalize(s string) string {
	for i, r := range s {
		if i > 0 {
			return mapped(s[:i], titleCases, unicode.ToTitle) + lower(s)[len(lower(s[:i])):]
		}
		_ = r
	}
	return mapped(s, titleCases, unicode.ToTitle)
}

// title is str.title.
func title(s string) string {
	var b strings.Builder
	within := false
	low := []rune(s)
	for i, r := range low {
		switch {
		case !within:
			b.WriteString(mapped(string(r), titleCases, unicode.ToTitle))
		case r == 'Σ' && endsWord(low, i):
			b.WriteRune('ς')
		default:
			b.WriteString(lower(string(r)))
		}
		within = cased(r)
	}
	return b.String()
}

// titleWords is the filter title: words begin behind white space, hyphens and brackets alone.
func titleWords(s string) string {
	between := func(r rune) bool { return strings.ContainsRune("-({[<", r) || space(r) }
	var b strings.Builder
	for len(s) > 0 {
		end, first := len(s), true
		var is bool
		for i, r := range s {
			if first {
				is, first = between(r), false
			} else if between(r) != is {
				end = i
				break
			}
		}
		if part := s[:end]; is {
			b.WriteString(part)
		} else {
			_, size := []rune(part)[0], len(string([]rune(part)[0]))
			b.WriteString(upper(part[:size]) + lower(part[size:]))
		}
		s = s[end:]
	}
	return b.String()
}

func swapcase(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case isUpper(r):
			b.WriteString(lower(string(r)))
		case isLower(r):
			b.WriteString(upper(string(r)))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// istitle is str.istitle.
func istitle(s string) bool {
	within, any := false, false
	for _, r := range s {
		switch {
		case isUpper(r):
			if within {
				return false
			}
			within, any = true, true
		case isLower(r):
			if !within {
				return false
			}
		default:
			within = false
		}
	}
	return any
}

// splitlines is str.splitlines.
func splitlines(s string, keep bool) []any {
	lines := []any{}
	runes := []rune(s)
	begin := 0
	for i := 0; i < len(runes); i++ {
		if !strings.ContainsRune("\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029", runes[i]) {
			continue
		}
		end := i
		if runes[i] == '\r' && i+1 < len(runes) && runes[i+1] == '\n' {
			i++
		}
		if keep {
			end = i + 1
		}
		lines = append(lines, string(runes[begin:end]))
		begin = i + 1
	}
	if begin < len(runes) {
		lines = append(lines, string(runes[begin:]))
	}
	return lines
}

// every reports whether a text has a character, and all are of a kind.
func every(s string, is func(rune) bool) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !is(r) })
}

// words counts runs of letters, digits and underscores.
func words(s string) int {
	n, within := 0, false
	for _, r := range s {
		is := r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r)
		if is && !within {
			n++
		}
		within = is
	}
	return n
}

// justify widens a text to a number of characters: '<', '>' or '^', which Python's str.center rounds in its own way.
func justify(s string, width int, fill string, align byte) string {
	if len([]rune(fill)) != 1 {
		failf("the fill character must be exactly one character long")
	}
	l := layout{}
	missing := l.within(width) - len([]rune(s))
	if missing <= 0 {
		return s
	}
	left := map[byte]int{'<': 0, '>': missing, '^': missing/2 + missing&width&1}[align]
	return strings.Repeat(fill, left) + s + strings.Repeat(fill, missing-left)
}

// slicedText is a text from a character to before another one, as Python's find and startswith take them.
func slicedText(s string, from, to any) (text string, begin int) {
	r := []rune(s)
	at := func(v any, otherwise int) int {
		n, ok := v.(int)
		if !ok {
			return otherwise
		}
		if n < 0 {
			n += len(r)
		}
		return min(max(n, 0), len(r))
	}
	begin = at(from, 0)
	end := max(at(to, len(r)), begin)
	if n, ok := from.(int); ok && n > len(r) {
		return "", n
	}
	return string(r[begin:end]), begin
}
