package config

import (
	"slices"
	"strings"
	"testing"
)

const twoSets = `
[data]
train = ["a.txt"]
[[eval]]
name = "legal"
files = ["l/*.txt"]
[[eval]]
name = "code"
files = ["c.jsonl", "d.jsonl"]
format = "documents"
fields = ["prompt=question"]
[batch]
sequences = 8
`

// TestArrays: an array of tables is read, printed, compared and listed like other keys.
func TestArrays(t *testing.T) {
	c := parse(t, twoSets)
	if len(c.Eval) != 2 || c.Eval[0].Format != "text" || c.Eval[1].Name != "code" || len(c.Eval[1].Files) != 2 || c.Batch.Sequences != 8 {
		t.Fatalf("%+v", c.Eval)
	}
	if c.Data.ValFraction != 0 || c.HasMainSet() {
		t.Errorf("val_fraction %g with [[eval]]", c.Data.ValFraction)
	}
	if at := c.Where("eval[2].files").String(); at != "config.toml:9:9" || c.IsSet("eval[1].format") || !c.IsSet("eval[2].format") {
		t.Errorf("eval[2].files is at %s", at)
	}
	for name, text := range map[string]string{
		"one line": "data.train = ['a.txt']\nbatch.sequences = 8\neval = [{name = 'legal', files = ['l/*.txt']}, {name = 'code', " +
			"files = ['c.jsonl', 'd.jsonl'], format = 'documents', fields = ['prompt=question']}]",
		"printed": string(c.TOML()),
	} {
		if changes := everyDifference(c, parse(t, text)); changes != nil {
			t.Errorf("%s: %v", name, changes)
		}
	}
	one := parse(t, twoSets, "eval=[{name = 'legal', files = ['l/*.txt']}]")
	want := []Change{{"eval[2].name", `"code"`, "none"}, {"eval[2].files", `["c.jsonl", "d.jsonl"]`, "none"},
		{"eval[2].format", `"documents"`, "none"}, {"eval[2].fields", `["prompt=question"]`, "none"}}
	if got := everyDifference(c, one); !slices.Equal(got, want) {
		t.Errorf("Diff = %v, want %v", got, want)
	}
	if got := ResumeConflicts(c, one); got != nil {
		t.Errorf("conflicts %v", got)
	}
	if got := parse(t, twoSets, "eval=[]"); len(got.Eval) != 0 || got.Data.ValFraction != 0.1 {
		t.Errorf("--set eval=[] leaves %+v", got)
	}
	if got := parse(t, twoSets, "eval[2].name=prose"); got.Eval[1].Name != "prose" || got.Eval[0].Name != "legal" {
		t.Errorf("--set eval[2].name: %+v", got.Eval)
	}
	var set []string
	for _, e := range Entries(c) {
		if !e.IsDefault() {
			set = append(set, e.Key)
		}
	}
	if want := []string{"data.train", "data.val_fraction", "eval[1].name", "eval[1].files", "eval[2].name", "eval[2].files", "eval[2].format",
		"eval[2].fields", "batch.sequences"}; !slices.Equal(set, want) && !slices.Equal(set, slices.Delete(want, 1, 2)) {
		t.Errorf("entries %v, want %v", set, want)
	}
	keys := []string{"batch.sequences", "eval[2].name", "eval[1].files", "run.name", "eval[1].name"}
	slices.SortFunc(keys, CompareKeys)
	if want := []string{"run.name", "eval[1].name", "eval[1].files", "eval[2].name", "batch.sequences"}; !slices.Equal(keys, want) {
		t.Errorf("sorted %v", keys)
	}
}

// TestArraysFromCode: Go code adds, changes and removes tables.
func TestArraysFromCode(t *testing.T) {
	c := parse(t, twoSets)
	before := string(c.TOML())
	more, err := c.With(func(c *Config) { c.Eval = append(c.Eval, Eval{Name: "third", Files: []string{"t.txt"}}) })
	if err != nil || more.Eval[2].Format != "text" || !more.IsSet("eval[3].name") || more.IsSet("eval[3].format") {
		t.Fatalf("%+v, %v", more, err)
	}
	fewer, err := more.With(func(c *Config) { c.Eval = c.Eval[:1] })
	if err != nil || len(fewer.Eval) != 1 || fewer.IsSet("eval[2].name") || !fewer.IsSet("eval[1].name") {
		t.Fatalf("%+v, %v", fewer, err)
	}
	changed, err := c.With(func(c *Config) { c.Eval[0].Name = "other" })
	if err != nil || changed.Eval[0].Name != "other" || string(c.TOML()) != before {
		t.Fatalf("%+v, %v", changed, err)
	}
	c.MoveTo("/folder")
	if c.Eval[1].Files[1] != "/folder/d.jsonl" || changed.Eval[1].Files[1] != "d.jsonl" {
		t.Errorf("moved: %v, the copy %v", c.Eval, changed.Eval)
	}
}

// TestBadArrays: each mistake is one error with its place.
func TestBadArrays(t *testing.T) {
	const data = "data.train = ['a.txt']\n"
	for text, want := range map[string]string{
		"[eval]\nname = 'x'":                                         "c.toml:2:2: eval: there may be several of this section; write [[eval]]",
		"eval.name = 'x'":                                            "c.toml:2:1: eval.name: there may be several of its section; write [[eval]] and name = … below",
		"eval = 3":                                                   "c.toml:2:1: eval: expected a list of tables, found the integer 3; write [[eval]] and its keys below",
		"eval = [3]":                                                 "c.toml:2:9: eval: expected a list of tables, found the integer 3; write [[eval]] and its keys below",
		"[[eval]]\nfiles = ['x']":                                    "c.toml:2:3: eval[1].name: the set has no name; name it, such as name = \"legal\"",
		"[[eval]]\nname = 'x'":                                       "c.toml:2:3: eval[1].files: no files are given; set it to a list",
		"[[eval]]\nname = 'val'\nfiles = ['x']":                      `c.toml:3:8: eval[1].name: "val" is the set of data.val and data.val_fraction; use another name`,
		"[[eval]]\nname = 'a/b'\nfiles = ['x']":                      `c.toml:3:8: eval[1].name: "a/b" is not a valid name of a set`,
		"[[eval]]\nname = 'x'\nfile = ['x']":                         "c.toml:4:1: eval.file: unknown key; did you mean eval.files?",
		"[[eval]]\nfiles = ['f']\nname = 'x'\nname = 'y'":            "c.toml:5:1: eval[1].name: the key is set already, at c.toml:4:8; remove one of the two",
		"[[evals]]\nname = 'x'":                                      "c.toml:2:3: evals: unknown section; did you mean [[eval]]?",
		"[[run]]\nname = 'x'":                                        "c.toml:2:3: run: a section has single brackets; write [run]",
		"[[eval]]\nname = 'x'\nfiles = 'y'":                          "c.toml:4:9: eval[1].files: expected a list of strings, found the string \"y\"; write files = ",
		"[[eval]]\nname = 'x'\nfiles = ['y']\nformat = 'csv'":        `c.toml:5:10: eval[1].format: "csv" cannot be read by a model of the default data.format = "text"`,
		"[[eval]]\nname = 'x'\nfiles = ['y']\nfields = ['prompt=q']": `c.toml:5:10: eval[1].fields: ["prompt=q"] has no effect with the default eval[1].format = "text"`,
		"[[eval]]\nname = 'x'\nfiles = ['y']\n[[eval]]\nname = 'x'\nfiles = ['z']": `c.toml:6:8: eval[2].name: "x" is the name of [[eval]] 1, too`,
		strings.Repeat("[[eval]]\n", maxEvals+1):                                   "c.toml:66:3: eval: there are more than 64 [[eval]]",
	} {
		_, err := Parse("c.toml", []byte(data+text), nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") && !strings.HasPrefix(text, "[[eval]]\n[[") {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
	for set, want := range map[string]string{
		"eval=3":                    "--set eval=3: eval: expected a list of tables",
		"eval=[{name='x'}]":         "--set eval=[{name='x'}]: eval[1].files: no files are given",
		"eval=[{nam='x'}]":          "--set eval=[{nam='x'}]: eval.nam: unknown key",
		"eval[1].name=x":            "eval[1].name: the config has 0 [[eval]]; write --set 'eval=[{name = …}]' to replace all of them",
		"eval.name=x":               "the config has 0 [[eval]]",
		"eval[9999999999999].name=": "unknown key",
		"eval[01].name=x":           "unknown key",
	} {
		if _, err := Parse("c.toml", []byte(data), []string{set}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: %v, want %s", set, err, want)
		}
	}
}
