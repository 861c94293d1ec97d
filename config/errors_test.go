package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "regenerate the golden files and docs/config.md")

// Each testdata/errors/*.toml holds mistakes; the .txt beside it holds what is
// said about them. Lines "#--set …" and "#env NAME=value" at the head of a file
// are the command line and the environment it is read with.
func TestErrorTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/errors/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sets, env := directives(string(text))
			_, err = Parse("config.toml", text, sets, env)
			var errs Errors
			if !errors.As(err, &errs) || len(errs) == 0 {
				t.Fatalf("got %v, want Errors", err)
			}
			compareGolden(t, strings.TrimSuffix(file, ".toml")+".txt", err.Error()+"\n")
		})
	}
}

func directives(text string) (sets []string, env func(string) (string, bool)) {
	vars := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if set, ok := strings.CutPrefix(line, "#--set"); ok {
			sets = append(sets, strings.TrimPrefix(set, " "))
		} else if variable, ok := strings.CutPrefix(line, "#env "); ok {
			name, value, _ := strings.Cut(variable, "=")
			vars[name] = value
		}
	}
	return sets, lookupIn(vars)
}

func lookupIn(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("differs from %s (go test -update regenerates it)\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// An error stays one line, whatever the user's text holds.
func TestErrorsStayOnTheirLine(t *testing.T) {
	long := strings.Repeat("x", 5000)
	text := "[run]\nname = \"a\\nb/" + long + "\"\n\"a\\nb\" = 1\n" + long + " = 2\n[\"c\\u001b[31m\"]\n"
	_, err := Parse("config.toml", []byte(text), []string{"run.nmae=\nx\n", "model.layers=\n" + long}, nil)
	var errs Errors
	if !errors.As(err, &errs) || len(errs) != 7 {
		t.Fatalf("got %v, want seven Errors", err)
	}
	for _, e := range errs {
		if line := e.Error(); len(line) > 500 || strings.ContainsAny(line, "\n\x1b") {
			t.Errorf("not a plain, short line: %q", line)
		}
	}
}

// A file that is no config at all costs little and is told so once.
func TestMistakesAreBounded(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"lines", strings.Repeat("x = 1\n", MaxFileBytes/6)},
		{"one line", "model = {" + strings.Repeat("x=1,", MaxFileBytes/4-10) + "}"},
		{"too large", strings.Repeat("#", MaxFileBytes+1)},
		{"long list", "data.train = [" + strings.Repeat("3,", MaxFileBytes/2-20) + "]"},
		{"deep", "data.train = " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000)},
	} {
		_, err := Parse("config.toml", []byte(c.text), nil, nil)
		var errs Errors
		if !errors.As(err, &errs) || len(errs) > maxErrors+1 {
			t.Errorf("%s: got %d mistakes, want 1 to %d", c.name, len(errs), maxErrors+1)
		}
	}
}

// A list that is too long is refused by the key's own limit.
func TestLongLists(t *testing.T) {
	for _, c := range []struct {
		key, entry string
		most       int
	}{{"data.train", "a", maxPatterns}, {"data.val", "a", maxPatterns}, {"device.ranks", "cpu", maxStages}} {
		list := func(n int) string {
			return c.key + "=[" + strings.Repeat(fmt.Sprintf("%q,", c.entry), n) + "]"
		}
		sets := []string{"data.train=a", "data.val_fraction=0.1", fmt.Sprintf("pipeline.stages=%d", maxStages)}
		if c.key == "data.val" {
			sets[1] = "data.val_fraction=0"
		}
		if _, err := Parse("long", nil, append(sets, list(c.most)), nil); err != nil {
			t.Errorf("%d entries of %s: %v", c.most, c.key, err)
		}
		for _, n := range []int{c.most + 1, 3 * maxStages} {
			_, err := Parse("long", nil, append(sets, list(n)), nil)
			if want := fmt.Sprintf("%s: the list has more than %d entries", c.key, c.most); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%d entries of %s: %v, want %q", n, c.key, err, want)
			}
		}
	}
}

func TestErrorsUnwrap(t *testing.T) {
	_, err := Parse("config.toml", nil, nil, nil)
	var one *Error
	if !errors.As(err, &one) || one.Key != "data.train" || one.Pos != (Pos{File: "config.toml"}) {
		t.Errorf("got %#v, want the missing data.train in config.toml", one)
	}
}
