package config

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// Every key and every section has a text in keys.go, and every number a unit. A default that is given as a value is the default.
func TestTexts(t *testing.T) {
	defaults := parse(t, "data.train = ['a.txt']")
	for _, section := range sections {
		if textOf(section).brief == "" {
			t.Errorf("[%s] has no text: write a comment above its field in keys.go", section)
		}
	}
	for i := range schema {
		f := &schema[i]
		text, value := textOf(f.key), f.load(defaults)
		if text.brief == "" || text.usually == "" {
			t.Errorf("%s has no text: write a comment above its field in keys.go, which ends with its default: // Steps between … . Default: 1.",
				f.key)
			continue
		}
		if n := utf8.RuneCountInString(text.brief); n > 100 {
			t.Errorf("%s: the first sentence has %d characters; engine init puts it on one line, so use at most 100", f.key, n)
		}
		if !text.follows() && text.usually != render(value) && f.key != "data.train" {
			t.Errorf("%s: the text says that the default is %s, but it is %s", f.key, text.usually, render(value))
		}
		number := typeOf(value) != "string" && typeOf(value) != "boolean" && typeOf(value) != "list of strings"
		if number != (f.unit != "") {
			t.Errorf("%s: the unit %q of a %s: name one for numbers, such as \"steps\" or noUnit, and none for others", f.key, f.unit,
				typeOf(value))
		}
	}
}

// A key that is added without a comment has no text.
func TestTextMissing(t *testing.T) {
	without := strings.Replace(keysSource, "	// Attention heads. Default: 4.\n", "", 1)
	if without == keysSource || readTexts(without)["model.heads"].brief != "" || readTexts(keysSource)["model.heads"].usually != "4" {
		t.Errorf("model.heads: %+v without its comment, %+v with it", readTexts(without)["model.heads"], readTexts(keysSource)["model.heads"])
	}
}

// TestDocs holds docs/config.md against the schema. `make docs` writes it.
func TestDocs(t *testing.T) {
	const file = "../docs/config.md"
	got := docs(parse(t, "data.train = ['a.txt']"))
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run make docs", err)
	}
	if got != string(want) {
		t.Errorf("docs/config.md differs from the schema; run make docs\n%s", firstDifference(string(want), got))
	}
}

// firstDifference shows the first line in which two texts differ.
func firstDifference(have, want string) string {
	a, b := strings.Split(have, "\n"), strings.Split(want, "\n")
	for i := range max(len(a), len(b)) {
		x, y := "(nothing)", "(nothing)"
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return fmt.Sprintf("line %d has  %s\nand not     %s", i+1, x, y)
		}
	}
	return ""
}

const docsHead = `# Config file

<!-- make docs writes this page from config/keys.go and config/schema.go. Edit the comments there. -->

A run is described by one TOML file. This page lists every key. Only ` + "`data.train`" + ` is required.

- ` + "`engine init`" + ` writes a file with all keys and their defaults, most of them commented out.
- ` + "`engine config check FILE`" + ` reports every error in a file, each with its line and column.
- ` + "`engine config print FILE`" + ` prints the file with every key resolved.
- ` + "`--set section.key=value`" + ` overrides a key for one run: ` + "`engine run config.toml --set optimizer.lr=3e-4`" + `.
  The value is TOML, or else a plain string. Repeat ` + "`--set`" + ` for several keys.

Reading is strict. An unknown key, a wrong type, a value out of range, keys that contradict each other, and a key without
effect are errors.

In paths, ` + "`${VAR}`" + ` is an environment variable, and ` + "`${VAR:-text}`" + ` uses ` + "`text`" + `
if the variable is unset or empty. Relative paths are relative to the working directory, not to the file.

In the tables below:

- *Values* are those that the key accepts. More checks compare keys with each other, with the data, and with the memory.
- A section in double brackets may stand several times: each ` + "`[[eval]]`" + ` begins another table. Errors call the first one
  ` + "`eval[1]`" + `. ` + "`--set 'eval=[{name = \"legal\", files = [\"legal.txt\"]}]'`" + ` replaces all of them.
- "Depends on" names keys. Some of their values leave this key without effect, and setting it is then an error.
- *On resume* says whether the key may change between the start of a run and a resume from its checkpoint. A change of a key
  that must stay is an error. The folder of such a run cannot continue with the new value; start a new one, with
  ` + "`model.from`" + ` for its weights.
`

// docs writes docs/config.md.
func docs(defaults *Config) string {
	var b strings.Builder
	b.WriteString(docsHead)
	for _, section := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", bracketed(section), sentences(textOf(section)))
		b.WriteString("| Key | Type | Default | Meaning | Values | On resume |\n|---|---|---|---|---|---|\n")
		for i := range schema {
			if f := &schema[i]; f.section() == section {
				cells := []string{"`" + f.name() + "`", typeAndUnit(f, defaults), defaultOf(f), meaning(f), valuesOf(f, defaults), onResume(f)}
				for i, cell := range cells {
					cells[i] = markdown(cell)
				}
				fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
			}
		}
	}
	return b.String()
}

func sentences(t text) string {
	s := t.brief + "."
	if t.more != "" {
		s += " " + t.more
	}
	return s
}

func typeOf(value any) string {
	return map[string]string{"int64": "integer", "float64": "number", "bool": "boolean", "string": "string", "[]string": "list of strings",
		"[]int64": "integer or list", "[][2]float64": "list of pairs"}[fmt.Sprintf("%T", value)]
}

func typeAndUnit(f *field, defaults *Config) string {
	s := typeOf(f.load(defaults))
	if f.unit != "" && f.unit != noUnit {
		s += ", " + f.unit
	}
	return s
}

func defaultOf(f *field) string {
	switch t := textOf(f.key); {
	case f.key == "data.train", t.usually == "none":
		return "none"
	case t.follows():
		return t.usually
	default:
		return "`" + t.usually + "`"
	}
}

// meaning is the text with what the schema knows besides.
func meaning(f *field) string {
	s := sentences(textOf(f.key))
	if f.shape {
		s += " model.from sets it."
	}
	var under []string
	for _, k := range idleKeys {
		if k.key == f.key {
			under = append(under, k.under)
		}
	}
	if len(under) > 0 {
		s += " Depends on " + strings.Join(under, ", ") + "."
	}
	return s
}

func valuesOf(f *field, defaults *Config) string {
	_, isBool := f.load(defaults).(bool)
	switch {
	case isBool:
		return "`true`, `false`"
	case f.check == nil:
		return "any"
	}
	_, isText := f.load(defaults).(string)
	if isText && !strings.Contains(f.check.allows, `"`) || strings.Contains(f.check.allows, "entries") {
		return f.check.allows + ", such as `" + f.example + "`"
	}
	return f.check.allows
}

// keyName is a key in a text.
var keyName = regexp.MustCompile("\\b(" + strings.Join(sections, "|") + `)\.[a-z][a-z0-9_]*\b`)

// markdown writes a text for a cell of a table.
func markdown(s string) string {
	if !strings.HasPrefix(s, "`") {
		s = keyName.ReplaceAllStringFunc(s, func(key string) string {
			if lookup(key) == nil {
				return key
			}
			return "`" + key + "`"
		})
	}
	return strings.ReplaceAll(s, "|", `\|`)
}

func onResume(f *field) string {
	if f.free {
		return "may change"
	}
	return "must stay"
}
