package data

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// anyDepth is the pattern element that stands for any number of folders, also
// none.
const anyDepth = "**"

// Files returns the files that match at least one pattern, each once, sorted by
// the bytes of their paths. An element of a pattern is as in filepath.Match, or
// "**" for folders of any depth; a "**" at the end stands for all files below.
// Hidden files match like others. "**" doesn't follow links to folders.
//
// Folders, and what else is no regular file, are skipped. A pattern that matches
// nothing is an error.
func Files(patterns []string) ([]string, error) {
	var all []string
	for _, pattern := range patterns {
		found, err := match(pattern)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func match(pattern string) ([]string, error) {
	// A path to a file is that file, whatever special characters it contains.
	info, err := os.Stat(pattern)
	if err == nil && info.Mode().IsRegular() {
		return []string{filepath.Clean(pattern)}, nil
	}
	if !special(pattern) {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("the file %q does not exist (working directory %s)", pattern, workingDir())
		case err != nil:
			return nil, fmt.Errorf("data file: %w", plainError(err))
		case info.IsDir():
			return nil, fmt.Errorf("%q is a folder: for all files in it write %q", pattern, filepath.ToSlash(filepath.Join(pattern, anyDepth)))
		default:
			return nil, fmt.Errorf("%q is not a regular file", pattern)
		}
	}

	clean := filepath.Clean(pattern)
	dir := filepath.VolumeName(clean)
	elements := strings.Split(filepath.ToSlash(clean[len(dir):]), "/")
	if elements[0] == "" { // an absolute path
		dir += string(filepath.Separator)
		elements = elements[1:]
	}
	for _, e := range elements {
		if _, err := filepath.Match(e, ""); err != nil {
			return nil, fmt.Errorf("the pattern %q is malformed at %q", pattern, e)
		}
	}
	if elements[len(elements)-1] == anyDepth {
		elements = append(elements, "*")
	}
	elements = slices.CompactFunc(elements, func(a, b string) bool { return a == anyDepth && b == anyDepth })

	var found []string
	if err := walk(dir, elements, &found); err != nil {
		return nil, fmt.Errorf("the pattern %q: %w", pattern, plainError(err))
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the pattern %q matches no file (working directory %s)", pattern, workingDir())
	}
	return found, nil
}

// walk adds the files below dir that the pattern's elements lead to. A dir that
// is no folder has none. (A library would do, but for links: the one at hand follows
// them everywhere, round in circles under "**", or nowhere.)
func walk(dir string, elements []string, found *[]string) error {
	switch info, err := os.Stat(orHere(dir)); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return nil
	}
	first, rest := elements[0], elements[1:]
	if !special(first) { // also ".." and folders that may be entered but not listed
		return step(filepath.Join(dir, first), rest, found)
	}
	entries, err := os.ReadDir(orHere(dir))
	if err != nil {
		return err
	}
	if first == anyDepth {
		if err := walk(dir, rest, found); err != nil {
			return err
		}
		for _, e := range entries {
			if e.IsDir() {
				if err := walk(filepath.Join(dir, e.Name()), elements, found); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, e := range entries {
		if ok, err := filepath.Match(first, e.Name()); err != nil {
			return err
		} else if ok {
			if err := step(filepath.Join(dir, e.Name()), rest, found); err != nil {
				return err
			}
		}
	}
	return nil
}

// step adds path if it ends the pattern and is a file, and walks on otherwise.
func step(path string, rest []string, found *[]string) error {
	if len(rest) > 0 {
		return walk(path, rest, found)
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) { // a dangling link, such as an editor's lock
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().IsRegular() {
		*found = append(*found, path)
	}
	return nil
}

// special reports whether filepath.Match sees more than plain characters.
func special(s string) bool {
	return strings.ContainsAny(s, `*?[`) || runtime.GOOS != "windows" && strings.Contains(s, `\`)
}

// orHere keeps paths relative to the working directory free of a leading "./".
func orHere(dir string) string {
	if dir == "" {
		return "."
	}
	return dir
}

func workingDir() string {
	dir, err := os.Getwd()
	if err != nil {
		return "unknown"
	}
	return dir
}
