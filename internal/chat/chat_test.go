package chat

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// vectors are conversations rendered by transformers, by testdata/vectors.py.
type vectors struct {
	Special       map[string]string
	Conversations []struct {
		Messages, Tools json.RawMessage
		Add             bool
	}
	Templates []struct {
		Name    string
		Answers []struct{ Text, Error string }
	}
}

// TestRender: our templates, as transformers renders them.
func TestRender(t *testing.T) { compare(t, "testdata") }

// TestPublished is make check-chat: the templates of published models.
func TestPublished(t *testing.T) {
	folder := os.Getenv("TROUPE_CHAT_TEMPLATES")
	if folder == "" {
		t.Skip("make check-chat sets TROUPE_CHAT_TEMPLATES, a folder that testdata/vectors.py has filled")
	}
	compare(t, folder)
}

func compare(t *testing.T, folder string) {
	data, err := os.ReadFile(filepath.Join(folder, "vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all vectors
	if err := json.Unmarshal(data, &all); err != nil || len(all.Templates) == 0 {
		t.Fatal(err, "no vectors")
	}
	for _, v := range all.Templates {
		t.Run(v.Name, func(t *testing.T) {
			file := filepath.Join(folder, "templates", v.Name)
			if strings.HasPrefix(v.Name, "builtin/") {
				file = filepath.FromSlash(v.Name)
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tmpl := parse(t, string(source))
			rendered := 0
			for i, c := range all.Conversations {
				messages, err := ParseMessages(c.Messages)
				if err != nil {
					t.Fatal(err)
				}
				o := Options{AddGenerationPrompt: c.Add, Special: all.Special, Now: time.Now()}
				if string(c.Tools) != "null" {
					o.Tools = c.Tools
				}
				got, err := tmpl.Render(messages, o)
				want := v.Answers[i]
				switch {
				case want.Error != "" && err == nil:
					t.Errorf("conversation %d: %q, want the error %q", i, got, want.Error)
				case want.Error == "" && err != nil:
					t.Errorf("conversation %d: %v", i, err)
				case got != want.Text:
					at := common(got, want.Text)
					t.Errorf("conversation %d differs at byte %d: …%.80q, want …%.80q", i, at, got[at:], want.Text[at:])
				case err == nil:
					rendered++
				case !errors.Is(err, ErrRender):
					t.Errorf("conversation %d: %v is no ErrRender", i, err)
				}
			}
			t.Logf("%d of %d conversations rendered, the others refused, as by transformers", rendered, len(all.Conversations))
		})
	}
}

func parse(t *testing.T, source string) *Template {
	t.Helper()
	tmpl, err := Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

// TestPython: what templates count on, where the library alone differs from Python.
func TestPython(t *testing.T) {
	one := []Message{{Role: "user", Content: "é, b, c"}}
	for source, want := range map[string]string{
		"{{ messages[-1].content }}":                                                               "é, b, c",
		"{{ messages[0].content.split(', ')[-1] }}":                                                "c",
		"{{ messages[0].content.split(', ', 1)[-1] }}":                                             "b, c",
		"{{ messages[0].content.rsplit(', ', 1)[0] }}":                                             "é, b",
		"{% if not nothing is defined %}a{% endif %}":                                              "a",
		"{% if not messages[0].role is not string %}a{% endif %}":                                  "a",
		"{% if not 'x' in messages[0].content %}a{% endif %}":                                      "a",
		"{{ '\t a\n'.lstrip() ~ '|' ~ ' \n'.rstrip() ~ '|' ~ ' a '.strip() }}":                     "a\n||a",
		"{{ 'aXbXc'.replace('X', '') ~ 'aXbX'.replace('X', '', 1) }}":                              "abcabX",
		"{{ 'abc'.startswith('ab') and 'abc'.endswith(('x', 'bc')) }}":                             "True",
		"{% for k, v in {'b': 1, 'a': [2]}.items() %}{{ k }}{{ v }}{% endfor %}":                   "b1a[2]",
		"{{ {'b': 'é', 'a': none} | tojson }}":                                                     `{"b": "é", "a": null}`,
		"{% for i in range(3) %}{{ loop.index }}{% if i == 1 %}{% break %}{% endif %}{% endfor %}": "12",
		"{{ 'a\nb' | indent(2) }}":                                                                 "a\n  b",
	} {
		got, err := parse(t, source).Render(one, Options{})
		if want := strings.ReplaceAll(want, "\\n", "\n"); err != nil || got != want {
			t.Errorf("%s: %q, want %q, %v", source, got, want, err)
		}
	}
}

// TestLimits: a template that loops or grows ends with an error, and quickly.
func TestLimits(t *testing.T) {
	many := strings.Repeat("{% for a in messages %}", 12) + "x" + strings.Repeat("{% endfor %}", 12)
	for name, c := range map[string]struct{ source, want string }{
		"a long range":         {"{% for i in range(1000000000000) %}{% endfor %}", "range has"},
		"ranges in ranges":     {"{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}", "steps"},
		"loops over messages":  {many, "steps"},
		"output in loops":      {"{% for i in range(9999) %}{% for j in range(9999) %}{{ messages }}{% endfor %}{% endfor %}", "steps"},
		"a macro of itself":    {"{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "deep"},
		"macros of each other": {"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}", "deep"},
		"doubling": {"{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
			"bytes"},
		"long output":             {"{% set x = 'xxxxxxxxxxxxxxxx' * 100 %}{% set x = x * 100 %}{% set x = x * 100 %}{{ x }}{{ x }}{{ x }}{{ x }}{{ x }}", "written"},
		"doubling a variable":     {"{% set x = messages[0].content %}" + strings.Repeat("{% set x = x ~ x ~ x ~ x %}", 30), "bytes"},
		"replacing":               {"{% set x = 'a' %}" + strings.Repeat("{% set x = x.replace('a', 'aaaaaaaaaaaaaaaa') %}", 20), "bytes"},
		"an exception":            {"{{ raise_exception('no system messages') }}", "no system messages"},
		"no date":                 {"{{ strftime_now('%Y') }}", "strftime_now"},
		"another template":        {"{% include '/etc/passwd' %}", "include"},
		"a loop over None":        {"{% for x in none %}{% endfor %}", "a loop over None"},
		"a loop over a condition": {"{% for a in (range(9999)|list if true else []) %}{% endfor %}{% set x = range(9999)|list %}{% for i in (x if x else x) %}{% for j in (x if x else x) %}{% for k in (x if x) %}{% endfor %}{% endfor %}{% endfor %}", "steps"},
		"an unknown filter":       {"{{ 'a' | lipsum }}", "lipsum"},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl, err := Parse(c.source)
			if err == nil {
				var text string
				text, err = tmpl.Render([]Message{{Role: "user", Content: "ab"}, {Role: "user", Content: "c"}, {Role: "user", Content: "d"},
					{Role: "user", Content: "e"}}, Options{})
				if err == nil {
					t.Fatalf("no error, but %d bytes", len(text))
				}
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v doesn't say %q", err, c.want)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for name, source := range map[string]string{
		"too long":   strings.Repeat("x", MaxTemplateBytes+1),
		"not ended":  "{% if true %}",
		"not closed": "{{ 'a",
		"conditions": "{{ 1" + strings.Repeat(" if a else 1", maxNesting+2) + "}}",
		"brackets":   "{{ " + strings.Repeat("(", 100000),
		"extends":    "{% extends 'x' %}",
		"import":     "{% import 'x' as y %}",
	} {
		if _, err := Parse(source); !errors.Is(err, ErrTemplate) {
			t.Errorf("%s: %v is no ErrTemplate", name, err)
		}
	}
}

func TestMessages(t *testing.T) {
	got, err := ParseMessages([]byte(`[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"b":1,"a":2}]}]`))
	if err != nil || len(got) != 2 || got[0].Raw != nil || got[1].Raw == nil {
		t.Fatalf("%+v, %v", got, err)
	}
	text, err := parse(t, "{{ messages[1].tool_calls[0] | tojson }}{{ messages[1].tool_calls[0].items() | list }}").Render(got, Options{})
	if want := `{"b": 1, "a": 2}[('b', 1), ('a', 2)]`; err != nil || text != want {
		t.Errorf("%q, want %q, %v", text, want, err)
	}
	for name, data := range map[string]string{
		"no array": `{}`, "empty": `[]`, "no object": `[1]`, "no role": `[{"content":"a"}]`, "role is a number": `[{"role":1}]`,
		"twice": `[{"role":"a","role":"b"}]`, "not JSON": `[{`, "behind": `[{"role":"a"}]x`, "no UTF-8": "[{\"role\":\"\xff\"}]",
	} {
		if _, err := ParseMessages([]byte(data)); !errors.Is(err, ErrMessages) {
			t.Errorf("%s: %v is no ErrMessages", name, err)
		}
	}
}

// FuzzTemplate: no template panics, or goes on for ever.
func FuzzTemplate(f *testing.F) {
	files, _ := filepath.Glob("testdata/templates/*.jinja")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b), `[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`)
	}
	f.Fuzz(func(t *testing.T, source, messages string) {
		m, err := ParseMessages([]byte(messages))
		if err != nil {
			m = []Message{{Role: "user", Content: "q"}, {Role: "assistant", Content: "a"}}
		}
		tmpl, err := Parse(source)
		if err != nil {
			return
		}
		o := Options{Special: map[string]string{"eos_token": "</s>"}}
		text, turns, err := tmpl.Turns(m, o)
		if err != nil {
			if !errors.Is(err, ErrRender) {
				t.Errorf("%v is no ErrRender", err)
			}
			return
		}
		if rendered, err := tmpl.Render(m, o); err != nil || rendered != text {
			t.Errorf("%q, rendered %q, %v", text, rendered, err)
		}
		at := 0
		for _, turn := range turns {
			if turn.From < at || turn.To < turn.From || turn.To > len(text) || turn.Said > len(text) || !turn.Marked && turn.Said >= 0 &&
				turn.Said < turn.From {
				t.Errorf("%+v of %d bytes, after %d", turn, len(text), at)
			}
			if at = turn.To; turn.Marked {
				at = turn.From // templates may mark what is marked
			}
		}
	})
}

// TestNames: the library has everything that templates may use of it.
func TestNames(t *testing.T) {
	for _, name := range statements {
		if !structures().Exists(name) {
			t.Errorf("no statement %q", name)
		}
	}
	e := environment()
	for _, name := range []string{"namespace", "range", "raise_exception"} {
		if !e.Context.Has(name) {
			t.Errorf("no %q", name)
		}
	}
}
