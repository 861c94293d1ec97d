package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/troupe-ml/troupe/internal/show/term"
)

// jsonOut is the output for JSON.
func (a *app) jsonOut() io.Writer { return term.NewWriter(a.out, escapeJSON) }

// escapeJSON escapes what could steer a terminal and encoding/json leaves as it is. It
// can stand nowhere but in strings, whose meaning stays the same.
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

// steers reports whether a terminal might obey a character, of those that JSON may hold.
// All of them are below U+10000.
func steers(r rune) bool {
	return r >= 0x7f && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}
