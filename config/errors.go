package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Pos is the origin of a value. The zero Pos is that of a default.
type Pos struct {
	File     string
	Row, Col int    // from 1, Col in characters; 0 is the file as a whole
	Set      string // the text after --set, for a value from the command line

	nth int // which --set, to sort by
}

// String returns the position as errors show it:
// "config.toml:12:10", "--set pipeline.stages=3" or "default".
func (p Pos) String() string {
	switch {
	case p.Set != "":
		return "--set " + oneLine(p.Set)
	case p.Row > 0:
		return fmt.Sprintf("%s:%d:%d", printable(p.File), p.Row, p.Col)
	case p.File != "":
		return printable(p.File)
	}
	return "default"
}

// compare sorts the file first, then the command line, then defaults.
func (p Pos) compare(q Pos) int {
	source := func(p Pos) int {
		switch {
		case p.Set != "":
			return 1
		case p.File != "":
			return 0
		}
		return 2
	}
	return cmp.Or(
		cmp.Compare(source(p), source(q)),
		cmp.Compare(p.nth, q.nth),
		cmp.Compare(p.Row, q.Row),
		cmp.Compare(p.Col, q.Col),
	)
}

// Error is one mistake in a configuration.
type Error struct {
	Pos  Pos
	Key  string // the dotted key; empty for a mistake in the TOML itself
	Msg  string // what is wrong, with the values
	Hint string // how to fix it; may be empty

	wrapped error // the %w of Errorf
}

// Unwrap returns the error that Errorf wrapped, or nil.
func (e *Error) Unwrap() error { return e.wrapped }

// Error returns the mistake as one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Pos.String())
	for _, part := range []string{e.Key, e.Msg} {
		if part != "" {
			b.WriteString(": " + part)
		}
	}
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// Errors are all mistakes in a configuration, sorted by position.
type Errors []*Error

// Error returns a line for each mistake.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the mistakes, for errors.As.
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, err := range e {
		errs[i] = err
	}
	return errs
}

func (e Errors) sorted() Errors {
	slices.SortStableFunc(e, func(a, b *Error) int { return a.Pos.compare(b.Pos) })
	return e
}

// oneLine makes a user's text fit on a line of an error.
func oneLine(text string) string { return printable(shorten(text)) }

// printable quotes a text that would break the line or steer the terminal.
func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// quoted does the same with quotes.
func quoted(text string) string { return strconv.Quote(shorten(text)) }

func shorten(text string) string {
	const most = 60 // characters
	n := 0
	for i := range text {
		if n++; n > most {
			return text[:i] + "…"
		}
	}
	return text
}

// joined writes the parts of a key as TOML does, with quotes around a part that requires them. So the
// text is a known key only if the parts are that key.
func joined(path []string) string {
	parts := make([]string, len(path))
	for i, part := range path {
		if parts[i] = shorten(part); !barePattern.MatchString(part) {
			parts[i] = quoted(part)
		}
	}
	return strings.Join(parts, ".")
}

var barePattern = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
