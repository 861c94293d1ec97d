package config

import (
	_ "embed"
	"regexp"
	"strings"
	"sync"
	"unicode"
)

//go:embed keys.go
var keysSource string

// text is what keys.go says about a key or a section.
type text struct {
	brief   string // the first sentence, without its period
	more    string // the other sentences; may be empty
	usually string // the default: a value as TOML, or words; empty for a section
}

// textOf returns the text of a key, or of a section; it is empty if keys.go has none.
func textOf(key string) text { return texts()[key] }

var texts = sync.OnceValue(func() map[string]text { return readTexts(keysSource) })

var (
	structLine = regexp.MustCompile(`^type (\w+) struct \{$`)
	fieldLine  = regexp.MustCompile("^\t\\w+ +(\\S+) +`toml:\"(\\w+)\"`$")
)

// readTexts reads the comments above the fields of structs whose tags name keys.
func readTexts(source string) map[string]text {
	all, sectionOf := make(map[string]text), make(map[string]string)
	section, comment := "", []string(nil)
	for line := range strings.Lines(source) {
		line = strings.TrimSuffix(line, "\n")
		if part, ok := strings.CutPrefix(strings.TrimSpace(line), "// "); ok {
			comment = append(comment, part)
			continue
		}
		if m := structLine.FindStringSubmatch(line); m != nil {
			section = sectionOf[m[1]] // none for Config, whose fields are the sections
		} else if m := fieldLine.FindStringSubmatch(line); m != nil {
			key := strings.TrimPrefix(section+"."+m[2], ".")
			all[key] = newText(strings.Join(comment, " "))
			if section == "" || unicode.IsUpper(rune(strings.TrimPrefix(m[1], "[]")[0])) { // the type of a section or of an array's tables
				sectionOf[strings.TrimPrefix(m[1], "[]")] = key
			}
		}
		comment = nil
	}
	return all
}

func newText(s string) (t text) {
	s, t.usually, _ = strings.Cut(s, "Default: ")
	t.usually = strings.TrimSuffix(t.usually, ".")
	t.brief, t.more, _ = strings.Cut(strings.TrimSpace(s), ". ")
	t.brief = strings.TrimSuffix(t.brief, ".")
	return t
}

// follows reports whether the default is given in words, because it follows from other keys.
func (t text) follows() bool {
	return t.usually != "" && !literal.MatchString(t.usually)
}

var literal = regexp.MustCompile(`^(-?[0-9][0-9.e-]*|true|false|"[^"]*"|\[\])$`)
