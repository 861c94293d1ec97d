//go:build unix && !race

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fence is a fenced block of a document. Its first line says what the test does with it:
//
//	toml FILE        a config: written to the page's folder, its keys and values checked
//	toml             keys: merged over a small config, and checked by engine config check
//	toml over FILE   keys: merged over FILE of the page's folder, and checked
//	sh               commands: run in the page's folder
//	sh exit N        commands, the last of which exits with status N
//	sh norun         commands that need other machines, a model, a GPU or minutes: engine's commands and flags are checked
//	sh long          as norun; run where TROUPE_LONG_TESTS is set
//	text             output or a drawing: not checked
//	text output      output of the sh block before: each line is in it, where "…" stands for anything
//	go FILE          part of a file of the repository: its lines are there; "// …" skips lines
//	go               a whole file: it is type-checked
//	LANGUAGE FILE    any other language: written to the page's folder
//	LANGUAGE         any other language: not checked
type fence struct {
	page string // the document, from the root
	line int    // of its first line
	info []string
	text string
}

// String is the place of a block.
func (f fence) String() string { return fmt.Sprintf("%s:%d", f.page, f.line) }

// is reports whether a block begins with some words.
func (f fence) is(words ...string) bool {
	return len(f.info) >= len(words) && strings.Join(f.info[:len(words)], " ") == strings.Join(words, " ")
}

// language is the first word of a block.
func (f fence) language() string { return f.info[0] }

// file is the name that a block gives; "": none.
func (f fence) file() string {
	if len(f.info) == 2 {
		return f.info[1]
	}
	return ""
}

// pages are the documents whose blocks are checked.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md"}
	for _, pattern := range []string{"docs/*.md", "examples/*/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			all = append(all, within(t, path))
		}
	}
	return all
}

// within is a path as seen from the root.
func within(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Rel(root, path)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.ToSlash(path)
}

// read reads a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fences are the blocks of a document.
func fences(t *testing.T, page string) (all []fence) {
	t.Helper()
	var open *fence
	lines := 0
	for line := range strings.Lines(read(t, page)) {
		lines++
		info, marked := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case !marked && open != nil:
			open.text += line
		case !marked:
		case open == nil:
			open = &fence{page: page, line: lines, info: strings.Fields(info)}
		default:
			if len(open.info) == 0 {
				t.Errorf("%v: the block has no language; use text for output and drawings", open)
			} else {
				all = append(all, *open)
			}
			open = nil
		}
	}
	if open != nil {
		t.Errorf("%v: the block has no end", open)
	}
	return all
}
