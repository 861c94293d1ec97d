package samples

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

var (
	// ErrOptions is in the chain of an error about Options that don't fit each other or the files.
	ErrOptions = errors.New("wrong data options")
	// ErrFormat is in the chain of an error about a file whose content is not as its format demands.
	ErrFormat = errors.New("malformed data")
	// ErrLabel is in the chain of an error about a label outside the classes.
	ErrLabel = errors.New("label outside the classes")
	// ErrShape is in the chain of an error about fields whose shapes don't fit.
	ErrShape = errors.New("shapes that don't fit")
	// ErrPosition is in the chain of an error about a stream that can't go to where it should.
	ErrPosition = errors.New("position out of reach")
	// ErrEnded is in the chain of an error about a stream that has no more samples.
	ErrEnded = errors.New("the data has ended")
)

// PlaceError is an error at a place in a file.
type PlaceError struct {
	File   string
	Line   int    // from 1; 0: the place is a byte of the file
	Column int    // of a CSV file, from 1; 0: the whole line
	Name   string // of the column or the key; "": it has none
	Byte   int64  // of the file, from 0; of the line, from 1, where there is one: 0: the whole line
	Err    error
}

func (e *PlaceError) Error() string {
	at := strictjson.Plain(e.File)
	if e.Line > 0 {
		at += fmt.Sprintf(", line %d", e.Line)
	}
	if e.Column > 0 {
		at += fmt.Sprintf(", column %d", e.Column)
	}
	if e.Line == 0 || e.Byte > 0 {
		at += fmt.Sprintf(", byte %d", e.Byte)
	}
	if e.Name != "" {
		at += " (" + shown(e.Name) + ")"
	}
	return at + ": " + e.Err.Error()
}

func (e *PlaceError) Unwrap() error { return e.Err }

// shown quotes text from a file for a message, shortened.
func shown(text string) string {
	if len(text) <= shownBytes {
		return strconv.Quote(text)
	}
	cut := shownBytes
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return fmt.Sprintf("%q… (%d bytes)", text[:cut], len(text))
}

// list shows the first of some names, and how many more there are.
func list(names []string) string {
	var text []string
	for _, n := range names[:min(len(names), shownNames)] {
		text = append(text, shown(n))
	}
	if more := len(names) - shownNames; more > 0 {
		return strings.Join(text, ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(text, ", ")
}

// listFiles shows the first of some files.
func listFiles(names []string) string {
	text := strictjson.Plain(names[0])
	if more := len(names) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
