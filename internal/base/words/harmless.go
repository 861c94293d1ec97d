package words

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Harmless replaces what could steer a terminal, such as escape sequences, and
// bytes that are no UTF-8. Line breaks and tabs stay. Use it for untrusted text, such as
// the output of a model.
func Harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r) {
			return r
		}
		return utf8.RuneError
	}, text)
}

// OneLine makes text harmless and keeps it on its line. It is for what goes into a
// message, where a line break could begin another one that looks as good.
func OneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == '\u2028' || r == '\u2029' {
			return utf8.RuneError
		}
		return r
	}, Harmless(text))
}

// Cut makes text valid UTF-8, and cuts it where it has more than some bytes: an ellipsis shows that.
func Cut(text string, bytes int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes], "") + "…"
}
