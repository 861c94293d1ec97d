package troupe_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/troupe-ml/troupe"

// rules are what testdata/imports.txt says; it explains its form.
type rules struct {
	order   map[string]int      // of a package: its line's place
	allowed map[string][]string // of a package: what it may import
	never   []never
}

// never is a rule about what a package must not reach, not even through others.
type never struct {
	pkg    string
	banned []string
	reason string
}

// readRules reads imports.txt.
func readRules(text string) (rules, error) {
	r := rules{order: make(map[string]int), allowed: make(map[string][]string)}
	var pkg string
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		case words[0] == "never":
			rest, reason, _ := strings.Cut(strings.TrimPrefix(line, "never"), "#")
			name, banned, found := strings.Cut(rest, ":")
			if !found || strings.TrimSpace(reason) == "" {
				return r, fmt.Errorf("line %d: want never PACKAGE: PACKAGES # REASON, not %q", i+1, line)
			}
			r.never = append(r.never, never{strings.TrimSpace(name), strings.Fields(banned), strings.TrimSpace(reason)})
		case line[0] == '\t' && pkg != "":
			r.allowed[pkg] = append(r.allowed[pkg], words...)
		case line[0] != '\t' && len(words) == 1:
			pkg = words[0]
			if _, twice := r.order[pkg]; twice {
				return r, fmt.Errorf("line %d: %s has two entries", i+1, pkg)
			}
			r.order[pkg], r.allowed[pkg] = len(r.order), nil
		default:
			return r, fmt.Errorf("line %d: want a package, or a tab and what it may import, not %q", i+1, line)
		}
	}
	return r, nil
}

// place is a file that imports something.
type place struct{ file, imported string }

// check lists what breaks the rules. imports are those of each package, without its tests'.
func (r rules) check(imports map[string][]place) []string {
	var broken []string
	say := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	for pkg, places := range imports {
		if _, known := r.order[pkg]; !known {
			say("%s is not in testdata/imports.txt: add it below everything that it imports", pkg)
			continue
		}
		used := make(map[string]bool)
		for _, p := range places {
			own, isOwn := strings.CutPrefix(p.imported, "/")
			allowed := slices.IndexFunc(r.allowed[pkg], func(a string) bool {
				return a == own || !isOwn && (p.imported == a || strings.HasPrefix(p.imported, a+"/"))
			})
			if allowed < 0 {
				say("%s imports %s, which testdata/imports.txt does not allow %s: move what both need below them, "+
					"or, if the rule is wrong, add it there", p.file, own, pkg)
				continue
			}
			used[r.allowed[pkg][allowed]] = true
			if isOwn && r.order[own] >= r.order[pkg] {
				say("%s imports %s, which is above it in testdata/imports.txt's order", p.file, own)
			}
		}
		for _, a := range r.allowed[pkg] {
			if !used[a] {
				say("testdata/imports.txt allows %s to import %s, which it does not: delete the permission", pkg, a)
			}
		}
	}
	for pkg := range r.order {
		if _, there := imports[pkg]; !there {
			say("testdata/imports.txt has %s, which does not exist", pkg)
		}
	}
	for _, n := range r.never {
		for _, banned := range n.banned {
			if chain := reach(imports, n.pkg, banned, nil); chain != nil {
				say("%s must never know %s: %s (%s)", n.pkg, banned, n.reason, strings.Join(chain, " imports "))
			}
		}
	}
	slices.Sort(broken)
	return broken
}

// reach is the shortest-first-found chain of imports from a package to another one, or to a module; nil: there is none.
func reach(imports map[string][]place, from, to string, seen map[string]bool) []string {
	if seen == nil {
		seen = make(map[string]bool)
	}
	seen[from] = true
	for _, p := range imports[from] {
		own, isOwn := strings.CutPrefix(p.imported, "/")
		if own == to || !isOwn && strings.HasPrefix(own, to+"/") {
			return []string{from, own}
		}
		if isOwn && !seen[own] {
			if rest := reach(imports, own, to, seen); rest != nil {
				return append([]string{from}, rest...)
			}
		}
	}
	return nil
}

// imported reads what the packages below a folder import, without tests and the standard library; a
// package of this module begins with a slash.
func imported(dir string) (map[string][]place, error) {
	all := make(map[string][]place)
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "testdata" || name == "asmgen" || name != "." && strings.HasPrefix(name, ".")):
			return fs.SkipDir // asmgen is a module of its own
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(file))
		if all[pkg] == nil {
			all[pkg] = []place{} // a package that imports nothing is one too
		}
		for _, spec := range parsed.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			switch first, _, _ := strings.Cut(name, "/"); {
			case err != nil:
				return err
			case name == module:
				all[pkg] = append(all[pkg], place{file, "/."})
			case strings.HasPrefix(name, module+"/"):
				all[pkg] = append(all[pkg], place{file, path.Clean(strings.TrimPrefix(name, module))})
			case strings.Contains(first, "."):
				all[pkg] = append(all[pkg], place{file, name})
			}
		}
		return nil
	})
	return all, err
}

// TestImports: packages import what testdata/imports.txt allows, and nothing else.
func TestImports(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "imports.txt"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := readRules(string(text))
	if err != nil {
		t.Fatal(err)
	}
	imports, err := imported(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range r.check(imports) {
		t.Error(broken)
	}
}

// TestImportsAreJudged: what a person who breaks a rule is told.
func TestImportsAreJudged(t *testing.T) {
	r, err := readRules("low\nhigh\n\tlow example.org/lib\nnever high: example.org/net # it works offline\n")
	if err != nil {
		t.Fatal(err)
	}
	fine := map[string][]place{"low": nil, "high": {{"high/a.go", "/low"}, {"high/a.go", "example.org/lib/sub"}}}
	for _, c := range []struct {
		name string
		add  map[string][]place
		want string
	}{
		{"as allowed", nil, ""},
		{"not allowed", map[string][]place{"low": {{"low/b.go", "example.org/lib"}}},
			"low/b.go imports example.org/lib, which testdata/imports.txt does not allow low: move what both need below them, " +
				"or, if the rule is wrong, add it there"},
		{"unknown", map[string][]place{"new": nil}, "new is not in testdata/imports.txt: add it below everything that it imports"},
		{"unused", map[string][]place{"high": {{"high/a.go", "/low"}}},
			"testdata/imports.txt allows high to import example.org/lib, which it does not: delete the permission"},
		{"never", map[string][]place{"low": {{"low/b.go", "example.org/net/http"}}},
			"high must never know example.org/net: it works offline (high imports low imports example.org/net/http)"},
	} {
		all := make(map[string][]place)
		for _, m := range []map[string][]place{fine, c.add} {
			for pkg, places := range m {
				all[pkg] = places
			}
		}
		got := strings.Join(r.check(all), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	for _, text := range []string{"a b\n", "\ta\n", "a\na\n", "never a b\n", "never a: b\n"} {
		if _, err := readRules(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}
