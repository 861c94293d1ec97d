package scheduler

import (
	"strings"
	"unicode"
)

// Spreadsheets and hands write CSV with marks that mean nothing. What PyTorch's reader
// takes, which is Python's csv.reader with the spaces around each cell stripped, is taken here.

const byteOrderMark = "\ufeff"

// isUTF16 reports whether a file begins with UTF-16's byte order mark.
func isUTF16(text string) bool {
	return strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff")
}

// plainCell returns what a cell holds, without the spaces and the quotes around it.
func plainCell(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 1 && s[0] == '"' && s[len(s)-1] == '"' {
		s = strings.TrimSpace(s[1 : len(s)-1])
	}
	return s
}

// strayMark names a mark that a cell can't hold, with what to do about it; "" if it has none.
func strayMark(s string) string {
	for _, r := range s {
		switch {
		case r == '"':
			return "a quotation mark in it: quotes go around a whole cell, or are left out"
		case r == ';' && !isPair(s):
			return "a semicolon in it: separate cells by commas"
		case r == '\t':
			return "a tab in it: separate cells by commas"
		case r == '\r':
			return "a carriage return in it: end lines with LF or CR LF"
		case r == '\ufeff':
			return "a byte order mark (U+FEFF) in it: only the file may begin with one"
		case unicode.IsSpace(r):
			return "a space in it: leave it out"
		}
	}
	return ""
}
