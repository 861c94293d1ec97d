package data

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"unicode"
)

// plain quotes a file's name where it could break a message's line or steer a terminal:
// a pattern matches names that nobody has seen.
func plain(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

// plainError does so for the name in an error of the system's.
func plainError(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return &fs.PathError{Op: at.Op, Path: plain(at.Path), Err: at.Err}
	}
	return err
}

// Plain is a file's name for a message.
func Plain(name string) string { return plain(name) }
