//go:build unix && !race

package docs

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// TestLinks: each relative link of a Markdown file leads to a file or a folder, and its anchor to a heading.
func TestLinks(t *testing.T) {
	t.Parallel()
	documents := markdown(t)
	if len(documents) < 10 {
		t.Fatalf("%d documents were found", len(documents))
	}
	anchors := make(map[string]map[string]bool)
	for _, name := range documents {
		anchors[name] = anchorsOf(read(t, name))
	}
	for _, name := range documents {
		for line, targets := range linksOf(read(t, name)) {
			for _, target := range targets {
				if err := checkLink(name, target, anchors); err != nil {
					t.Errorf("%s:%d: %v", name, line, err)
				}
			}
		}
	}
}

// markdown are the Markdown files of the repository.
func markdown(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "runs" || d.Name() == "bin" ||
			strings.HasPrefix(d.Name(), ".") && !strings.HasPrefix(d.Name(), "..")):
			return filepath.SkipDir
		case strings.HasSuffix(p, ".md"):
			all = append(all, within(t, p))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func checkLink(from, target string, anchors map[string]map[string]bool) error {
	u, err := url.Parse(target)
	switch {
	case err != nil:
		return fmt.Errorf("link %s: %w", target, err)
	case u.Scheme != "" || u.Host != "":
		return nil // no test needs a network
	}
	to := from
	if u.Path != "" {
		to = path.Join(path.Dir(from), u.Path)
	}
	if strings.HasPrefix(to, "..") {
		return fmt.Errorf("link %s: it leaves the repository", target)
	}
	if _, err := os.Stat(filepath.Join(root, to)); err != nil {
		return fmt.Errorf("link %s: there is no %s", target, to)
	}
	if known, document := anchors[to]; document && u.Fragment != "" && !known[u.Fragment] {
		return fmt.Errorf("link %s: %s has no heading with this anchor", target, to)
	}
	return nil
}

var (
	inlineCode = regexp.MustCompile("`[^`]*`")
	inlineLink = regexp.MustCompile(`\]\(<?([^()\s>]+(?:\([^()\s]*\)[^()\s>]*)?)>?(?:\s+"[^"]*")?\)`)
	namedLink  = regexp.MustCompile(`^\[[^\]]+\]:\s+<?([^\s>]+)`)
	ownAnchor  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
)

// prose calls a function for each line that is in no fenced block.
func prose(text string, f func(number int, line string)) {
	number, fenced := 0, false
	for line := range strings.Lines(text) {
		number++
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		} else if !fenced {
			f(number, strings.TrimRight(line, "\n"))
		}
	}
}

// linksOf are the targets of a document's links by line.
func linksOf(text string) map[int][]string {
	all := make(map[int][]string)
	prose(text, func(number int, line string) {
		line = inlineCode.ReplaceAllString(line, "code")
		for _, pattern := range []*regexp.Regexp{inlineLink, namedLink} {
			for _, m := range pattern.FindAllStringSubmatch(line, -1) {
				all[number] = append(all[number], m[1])
			}
		}
	})
	return all
}

// anchorsOf are the anchors that GitHub gives to a document's headings.
func anchorsOf(text string) map[string]bool {
	all := make(map[string]bool)
	prose(text, func(_ int, line string) {
		for _, m := range ownAnchor.FindAllStringSubmatch(line, -1) {
			all[m[1]] = true
		}
		marks, heading, found := strings.Cut(line, " ")
		if !found || strings.Trim(marks, "#") != "" || len(marks) == 0 || len(marks) > 6 {
			return
		}
		anchor := slug(heading)
		for n := 0; ; n++ {
			name := anchor
			if n > 0 {
				name = fmt.Sprintf("%s-%d", anchor, n)
			}
			if !all[name] {
				all[name] = true
				return
			}
		}
	})
	return all
}

var headingLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// slug is a heading as an anchor.
func slug(heading string) string {
	heading = headingLink.ReplaceAllString(strings.TrimSpace(heading), "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// TestSlug compares anchors with those of GitHub.
func TestSlug(t *testing.T) {
	for heading, want := range map[string]string{
		"Plans of large models":            "plans-of-large-models",
		"What works, and on which machine": "what-works-and-on-which-machine",
		"`[run]` and [links](x.md)":        "run-and-links",
		"Zero-bubble: ZB-H1":               "zero-bubble-zb-h1",
	} {
		if got := slug(heading); got != want {
			t.Errorf("%q: %s, want %s", heading, got, want)
		}
	}
}
