package config

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

const templateHead = `# A run of Troupe. Check this file with "engine config check FILE", and train with
# "engine run FILE". To override a key for one run, add --set section.key=value.
#
# Keys that are commented out show their defaults. In paths, ${VAR} is an environment
# variable, and ${VAR:-text} uses text if the variable is unset or empty. Relative paths are
# relative to the working directory. docs/config.md describes every key.
`

// Setting is a key with a value.
type Setting struct {
	Key   string
	Value any    // int, float64, bool, string, []string or TOML
	Note  string // its comment; "": the key's text
}

// TOML is a value as it is written in a file.
type TOML string

// Template returns a commented configuration to start from. It has every key: those that most runs set and the settings, then the
// others as comments with their defaults.
func Template(settings ...Setting) []byte {
	defaults, err := Parse("", []byte("[data]\ntrain = "+lookup("data.train").example), nil, nil)
	if err != nil {
		panic(fmt.Sprintf("config: the defaults: %v", err))
	}
	b := bytes.NewBufferString(templateHead)
	for _, section := range sections {
		if arrayOf(section) != nil {
			writeArray(b, section)
			continue
		}
		fmt.Fprintf(b, "\n# %s.\n[%s]\n", textOf(section).brief, section)
		var rows, others []templateRow
		for i := range schema {
			f := &schema[i]
			if f.section() != section {
				continue
			}
			k := slices.IndexFunc(settings, func(s Setting) bool { return s.Key == f.key })
			switch {
			case k >= 0:
				rows = append(rows, rowOf(f, settings[k]))
			case f.basic && (!f.shape || !isGiven(settings, "model.from")):
				rows = append(rows, templateRow{f, render(f.load(defaults)), textOf(f.key).brief, true})
			default:
				others = append(others, templateRow{f, render(f.load(defaults)), textOf(f.key).brief, false})
			}
		}
		writeRows(b, append(rows, others...))
	}
	return b.Bytes()
}

// writeArray writes an array of tables as comments: a configuration has none by default.
func writeArray(b *bytes.Buffer, section string) {
	fmt.Fprintf(b, "\n# %s.\n# %s\n", textOf(section).brief, bracketed(section))
	width := 0
	for i := range schema {
		if f := &schema[i]; f.section() == section {
			width = max(width, utf8.RuneCountInString(f.name()+f.example))
		}
	}
	for i := range schema {
		if f := &schema[i]; f.section() == section {
			fmt.Fprintf(b, "#   %-*s  # %s\n", width+len(" = "), f.name()+" = "+f.example, textOf(f.key).brief)
		}
	}
}

// Outline returns a short commented configuration with these keys alone. The lines of head are a comment at its start.
func Outline(head []string, settings []Setting) []byte {
	var b bytes.Buffer
	for _, line := range head {
		b.WriteString(strings.TrimRight("# "+oneComment(line), " ") + "\n")
	}
	for _, section := range sections {
		var rows []templateRow
		for i := range schema {
			if k := slices.IndexFunc(settings, func(s Setting) bool { return s.Key == schema[i].key }); k >= 0 && schema[i].section() == section {
				rows = append(rows, rowOf(&schema[i], settings[k]))
			}
		}
		if len(rows) > 0 {
			fmt.Fprintf(&b, "\n[%s]\n", section)
			writeRows(&b, rows)
		}
	}
	return b.Bytes()
}

func isGiven(settings []Setting, key string) bool {
	return slices.ContainsFunc(settings, func(s Setting) bool { return s.Key == key })
}

// oneComment makes a text fit on a line of a comment.
func oneComment(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == utf8.RuneError || r == 0x7f {
			return '?'
		}
		return r
	}, text)
}

// templateRow is a key with its value and its comment.
type templateRow struct {
	*field
	value, note string
	set         bool // false: the line is a comment
}

func rowOf(f *field, s Setting) templateRow {
	value := s.Value
	if n, is := value.(int); is {
		value = int64(n)
	}
	note := oneComment(s.Note)
	if note == "" {
		note = textOf(f.key).brief
	}
	if text, is := value.(TOML); is {
		return templateRow{f, string(text), note, true}
	}
	return templateRow{f, render(value), note, true}
}

// maxNoteColumn is the column after which a comment gets a line of its own.
const maxNoteColumn = 40

// writeRows writes keys with their texts beside them, in columns.
func writeRows(b *bytes.Buffer, rows []templateRow) {
	assignments, width := make([]string, len(rows)), 0
	for i, r := range rows {
		assignments[i] = r.name() + " = " + r.value
		if !r.set {
			assignments[i] = "# " + assignments[i]
		}
		if n := utf8.RuneCountInString(assignments[i]); n <= maxNoteColumn || !r.set {
			width = max(width, n)
		}
	}
	for i, r := range rows {
		if r.set && utf8.RuneCountInString(assignments[i]) > maxNoteColumn {
			fmt.Fprintf(b, "# %s\n%s\n", r.note, assignments[i])
			continue
		}
		fmt.Fprintf(b, "%-*s  # %s\n", width, assignments[i], r.note)
		if t := textOf(r.key); t.follows() && !r.set {
			fmt.Fprintf(b, "#%*s  # default: %s\n", width-1, "", t.usually)
		}
	}
}
