package config

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

const templateHead = `# A run of Troupe. Check this file with "engine config check FILE", and train with
# "engine run FILE". To override a key for one run, add --set section.key=value.
#
# Keys that are commented out show their defaults. In paths, ${VAR} is an environment
# variable, and ${VAR:-text} uses text if the variable is unset or empty. Relative paths are
# relative to the working directory. docs/config.md describes every key.
`

// Template returns a commented configuration to start from. It has every key: those that most runs set, then the others as
// comments with their defaults.
func Template() []byte {
	defaults, err := Parse("", []byte("[data]\ntrain = "+lookup("data.train").example), nil, nil)
	if err != nil {
		panic(fmt.Sprintf("config: the defaults: %v", err))
	}
	b := bytes.NewBufferString(templateHead)
	for _, section := range sections {
		fmt.Fprintf(b, "\n# %s.\n[%s]\n", textOf(section).brief, section)
		var rows []templateRow
		for _, basic := range []bool{true, false} {
			for i := range schema {
				if f := &schema[i]; f.section() == section && f.basic == basic {
					rows = append(rows, templateRow{f, render(f.load(defaults))})
				}
			}
		}
		writeRows(b, rows)
	}
	return b.Bytes()
}

// templateRow is a key with its default.
type templateRow struct {
	*field
	value string
}

// writeRows writes keys with their texts beside them, in columns.
func writeRows(b *bytes.Buffer, rows []templateRow) {
	assignments, width := make([]string, len(rows)), 0
	for i, r := range rows {
		assignments[i] = r.name() + " = " + r.value
		if !r.basic {
			assignments[i] = "# " + assignments[i]
		}
		width = max(width, utf8.RuneCountInString(assignments[i]))
	}
	for i, r := range rows {
		t := textOf(r.key)
		fmt.Fprintf(b, "%-*s  # %s\n", width, assignments[i], t.brief)
		if t.follows() && !r.basic {
			fmt.Fprintf(b, "#%*s  # default: %s\n", width-1, "", t.usually)
		}
	}
}
