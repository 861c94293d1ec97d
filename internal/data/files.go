package data

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// anyDepth is the pattern element for any number of folders, including none.
const anyDepth = "**"

// Files returns the files that match at least one pattern, each once, sorted by the bytes of their
// paths. An element of a pattern is as in filepath.Match, or "**" for folders of any depth; a "**"
// at the end, and the path of a folder, match all files below. Hidden files match like others. "**"
// does not follow links to folders.
//
// A link to a file is that file. Folders, and everything else that is not a regular file, are
// skipped. A pattern without a match is an error.
func Files(patterns []string) ([]string, error) {
	f, err := Find(patterns)
	return f.Files, err
}

// Found is what patterns match, in the order of Files.
type Found struct {
	Files []string
	Again []string // further names of the same files: links, or other spellings
	Other []string // matches that are not files, each with its kind; folders only if no "**" enters them
}

// All returns all names of files.
func (f Found) All() []string {
	all := slices.Concat(f.Files, f.Again)
	slices.Sort(all)
	return all
}

// Find returns the result of Files together with what it leaves out.
func Find(patterns []string) (f Found, err error) {
	m := make(matches)
	for _, pattern := range patterns {
		if err := m.match(pattern); err != nil {
			return Found{}, err
		}
	}
	seen := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if kind := m[name]; kind != "" {
			f.Other = append(f.Other, fmt.Sprintf("%q (%s)", name, kind))
			continue
		}
		real := name
		if r, err := filepath.EvalSymlinks(name); err == nil {
			real = r
		}
		if abs, err := filepath.Abs(real); err == nil {
			real = abs
		}
		if seen[real] {
			f.Again = append(f.Again, name)
			continue
		}
		seen[real] = true
		f.Files = append(f.Files, name)
	}
	return f, nil
}

// matches are the matched names; for those that are not files, with their kind.
type matches map[string]string

func (m matches) files() (n int) {
	for _, kind := range m {
		if kind == "" {
			n++
		}
	}
	return n
}

func (m matches) match(pattern string) error {
	// A path to a file is that file, whatever special characters it contains.
	info, err := os.Stat(pattern)
	if err == nil && info.Mode().IsRegular() {
		m[filepath.Clean(pattern)] = ""
		return nil
	}
	if !special(pattern) {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("the file %q does not exist (working directory %s)", pattern, workingDir())
		case err != nil:
			return fmt.Errorf("data file: %w", plainError(err))
		case !info.IsDir():
			return fmt.Errorf("%q is not a regular file", pattern)
		}
	}
	if err == nil && info.IsDir() {
		return m.below(filepath.Clean(pattern))
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
			return fmt.Errorf("the pattern %q is malformed at %q", pattern, e)
		}
	}
	if elements[len(elements)-1] == anyDepth {
		elements = append(elements, "*")
	}
	elements = slices.CompactFunc(elements, func(a, b string) bool { return a == anyDepth && b == anyDepth })

	found := make(matches)
	if err := walk(dir, elements, found); err != nil {
		return fmt.Errorf("the pattern %q: %w", pattern, plainError(err))
	}
	if found.files() == 0 {
		return fmt.Errorf("the pattern %q matches no file (working directory %s)", pattern, workingDir())
	}
	for name, kind := range found {
		if kind != folder || !slices.Contains(elements, anyDepth) {
			m[name] = kind
		}
	}
	return nil
}

// below adds all files below a folder, as the pattern folder/** does.
func (m matches) below(path string) error {
	found := make(matches)
	if err := walk(path, []string{anyDepth, "*"}, found); err != nil {
		return fmt.Errorf("the folder %q: %w", path, plainError(err))
	}
	if found.files() == 0 {
		return fmt.Errorf("the folder %q has no files (working directory %s)", path, workingDir())
	}
	for name, kind := range found {
		if kind != folder {
			m[name] = kind
		}
	}
	return nil
}

// walk adds the files below dir that match the pattern's elements; a dir that is not a folder has
// none. (bmatcuk/doublestar v4.10 was tried. It follows links everywhere, and fails if they form a
// circle under "**". With WithNoFollow it follows none: then "*/1.txt" does not enter a linked
// folder, and data are often on another disk. Braces would also change the meaning of patterns in
// existing runs.)
func walk(dir string, elements []string, found matches) error {
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

// folder is the kind of a folder.
const folder = "a folder"

// step adds path if the pattern ends here, and otherwise continues the walk.
func step(path string, rest []string, found matches) error {
	if len(rest) > 0 {
		return walk(path, rest, found)
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil { // such as an editor's lock
			found[path] = "a broken link"
		}
		return nil
	}
	if err != nil {
		return err
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		found[path] = ""
	case mode.IsDir():
		found[path] = folder
	case mode&fs.ModeNamedPipe != 0:
		found[path] = "a named pipe"
	case mode&fs.ModeSocket != 0:
		found[path] = "a socket"
	default:
		found[path] = "a device"
	}
	return nil
}

// special reports whether filepath.Match treats s as more than plain characters.
func special(s string) bool {
	return strings.ContainsAny(s, `*?[`) || runtime.GOOS != "windows" && strings.Contains(s, `\`)
}

// orHere keeps relative paths free of a leading "./".
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
