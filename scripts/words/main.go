// Command words finds words that readers stumble over, and says what to write instead.
// words.txt lists them.
//
//	words [-all] [PATH...]
//
// PATH is a file or a folder; without one it reads the current folder. -all also reads the Go
// comments that no documentation shows. It prints FILE:LINE:COLUMN: "WORDS": REPLACEMENT for
// each place. The exit status is 1 if it found one, 2 if it could not read a file.
package main

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed words.txt
var wordsText string

func main() {
	all := flag.Bool("all", false, "read the comments of unexported names too")
	flag.Parse()
	paths := flag.Args()
	if len(paths) == 0 {
		paths = []string{"."}
	}
	found, err := run(paths, *all)
	if err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(2)
	}
	for _, f := range found {
		fmt.Println(f)
	}
	if len(found) > 0 {
		fmt.Fprintf(os.Stderr, "words: %d places to rewrite\n", len(found))
		os.Exit(1)
	}
}

// run returns what it finds under the paths, in the order of the files.
func run(paths []string, all bool) ([]string, error) {
	list, err := parse(wordsText)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, root := range paths {
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() {
				if base := d.Name(); name != root && (strings.HasPrefix(base, ".") || slices.Contains(unread, base)) {
					return filepath.SkipDir
				}
				return nil
			}
			if list.skips(name) {
				return nil
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			shown, err := mask(name, text, all)
			if err != nil {
				return err
			}
			found = append(found, list.find(name, text, shown)...)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// unread are the folders in which nothing is read.
var unread = []string{"testdata", "node_modules", "bin", "dist", "runs", "gpu-build", "shared"}

// rules are what words.txt says.
type rules struct {
	words []word
	all   *regexp.Regexp // any of the words
	ok    []exception
	skip  []string
}

type word struct {
	pattern *regexp.Regexp
	instead string
}

// exception is an honest use of words, in files whose path starts with path.
type exception struct {
	path    string
	pattern *regexp.Regexp
}

// parse reads words.txt, which explains its form.
func parse(text string) (rules, error) {
	var r rules
	var patterns []string
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		fail := func(want string) (rules, error) {
			return r, fmt.Errorf("words.txt: line %d: want %s, not %q", i+1, want, line)
		}
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "skip "):
			path, reason, _ := strings.Cut(strings.TrimPrefix(line, "skip "), " # ")
			if reason == "" {
				return fail("skip PATH # REASON")
			}
			r.skip = append(r.skip, path)
		case strings.HasPrefix(line, "ok "):
			rest, reason, _ := strings.Cut(strings.TrimPrefix(line, "ok "), " # ")
			path, pattern, found := strings.Cut(rest, ": ")
			if !found {
				path, pattern = "", rest
			}
			p, err := compile(pattern)
			if err != nil || reason == "" {
				return fail("ok [PATH: ]PATTERN # REASON")
			}
			r.ok = append(r.ok, exception{path, p})
		default:
			pattern, instead, found := strings.Cut(line, " -> ")
			p, err := compile(pattern)
			if err != nil || !found {
				return fail("PATTERN -> REPLACEMENT")
			}
			r.words = append(r.words, word{p, instead})
			patterns = append(patterns, pattern)
		}
	}
	var err error
	r.all, err = compile(strings.Join(patterns, "|"))
	return r, err
}

// compile makes a regular expression, for text in lower case, of a pattern of words.txt.
func compile(pattern string) (*regexp.Regexp, error) {
	return regexp.Compile(`\b(?:` + strings.ReplaceAll(pattern, " ", `\s+`) + `)\b`)
}

func (r *rules) skips(name string) bool {
	return slices.ContainsFunc(r.skip, func(p string) bool { return under(name, p) })
}

// under reports whether a file's path, which may begin above the module, has this start.
func under(name, path string) bool {
	name = filepath.ToSlash(name)
	return strings.HasPrefix(name, path) || strings.Contains(name, "/"+path)
}

// find lists the places of words in the mask of a text.
func (r *rules) find(name string, text, shown []byte) []string {
	shown, places := compact(shown)
	if !r.all.Match(shown) {
		return nil
	}
	var honest [][]int
	for _, e := range r.ok {
		if e.path == "" || under(name, e.path) {
			honest = append(honest, e.pattern.FindAllIndex(shown, -1)...)
		}
	}
	type hit struct {
		at   int
		text string
	}
	var hits []hit
	for _, w := range r.words {
		for _, m := range w.pattern.FindAllIndex(shown, -1) {
			if slices.ContainsFunc(honest, func(h []int) bool { return h[0] <= m[0] && m[1] <= h[1] }) {
				continue
			}
			at := places[m[0]]
			line := bytes.Count(text[:at], []byte("\n")) + 1
			column := at - bytes.LastIndexByte(text[:at], '\n')
			words := strings.Join(strings.Fields(string(shown[m[0]:m[1]])), " ")
			hits = append(hits, hit{at, fmt.Sprintf("%s:%d:%d: %q: %s", name, line, column, words, w.instead)})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return a.at - b.at })
	out := make([]string, len(hits))
	for i, h := range hits {
		out[i] = h.text
	}
	return out
}

// compact returns a mask in lower case with one NUL for each run of them, and where its bytes were.
func compact(mask []byte) (short []byte, places []int) {
	for i, b := range mask {
		if b == 0 && len(short) > 0 && short[len(short)-1] == 0 {
			continue
		}
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		short, places = append(short, b), append(places, i)
	}
	return short, places
}
