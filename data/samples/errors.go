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
	// ErrOptions: Options contradict each other or do not match the files.
	ErrOptions = errors.New("wrong data options")
	// ErrFormat: the content of a file does not match its format.
	ErrFormat = errors.New("malformed data")
	// ErrLabel: a label is outside the classes.
	ErrLabel = errors.New("label outside the classes")
	// ErrShape: the shapes of fields do not match.
	ErrShape = errors.New("shapes do not match")
	// ErrPosition: a stream can't be opened at the required position.
	ErrPosition = errors.New("position out of range")
	// ErrEnded: a stream has no more samples.
	ErrEnded = errors.New("the data has ended")
)

// PlaceError is an error at a place in a file.
type PlaceError struct {
	File   string
	Line   int    // from 1; 0: Byte counts from the start of the file
	Column int    // column of a CSV file, from 1; 0: the whole line
	Name   string // name of the column or the key; "": none
	Byte   int64  // without Line: byte of the file, from 0; with Line: byte of the line, from 1, or 0 for the whole line
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

// shown quotes and shortens text from a file for a message.
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

// list lists the first names, and how many more there are.
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

// listFiles lists the first files.
func listFiles(names []string) string {
	text := strictjson.Plain(names[0])
	if more := len(names) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
