package scheduler

import (
	"strings"
	"unicode"
)

// Spreadsheets and people write CSV with marks that have no meaning here. This reader accepts the
// marks that PyTorch's reader accepts, which is Python's csv.reader with the spaces around each
// cell removed.

const byteOrderMark = "\ufeff"

// isUTF16 reports whether a file begins with UTF-16's byte order mark.
func isUTF16(text string) bool {
	return strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff")
}

// plainCell returns a cell's content without the spaces and quotes around it.
func plainCell(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 1 && s[0] == '"' && s[len(s)-1] == '"' {
		s = strings.TrimSpace(s[1 : len(s)-1])
	}
	return s
}

// strayMark names a mark that a cell can't contain, and how to fix it; "" if there is none.
func strayMark(s string) string {
	for _, r := range s {
		switch {
		case r == '"':
			return "a quotation mark inside: put quotes around the whole cell, or leave them out"
		case r == ';' && !isPair(s):
			return "a semicolon inside: separate cells by commas"
		case r == '\t':
			return "a tab inside: separate cells by commas"
		case r == '\r':
			return "a carriage return inside: end lines with LF or CR LF"
		case r == '\ufeff':
			return "a byte order mark (U+FEFF) inside: it may stand only at the start of the file"
		case unicode.IsSpace(r):
			return "a space inside: remove it"
		}
	}
	return ""
}
