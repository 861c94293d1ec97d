package data

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"unicode"
)

// plain quotes a file's name if it could break a message's line or control a terminal: a pattern
// may match any name.
func plain(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

// plainError does this for the name in an error of the system.
func plainError(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return &fs.PathError{Op: at.Op, Path: plain(at.Path), Err: at.Err}
	}
	return err
}

// Plain returns a file's name for a message.
func Plain(name string) string { return plain(name) }
