package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/troupe-ml/troupe/internal/show/term"
)

// jsonOut returns the output for JSON.
func (a *app) jsonOut() io.Writer { return term.NewWriter(a.out, escapeJSON) }

// escapeJSON escapes characters that could steer a terminal and that encoding/json leaves unescaped. They
// occur only in JSON strings, so the value stays the same.
func escapeJSON(text string) string {
	if !strings.ContainsFunc(text, steers) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if steers(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// steers reports whether a character that JSON allows could steer a terminal. All such characters are
// below U+10000.
func steers(r rune) bool {
	return r >= 0x7f && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}
