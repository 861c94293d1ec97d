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

// expressions are what templates may say, with what transformers makes of each, by testdata/expressions.py.
type expressions struct {
	Messages, Tools json.RawMessage
	Rows            []struct{ Source, Text, Error string }
}

// TestExpressions: what a template says means what it means to transformers, or is refused by name.
func TestExpressions(t *testing.T) {
	expressionsIn(t, "testdata/expressions.json")
}

// TestRandomExpressions is part of make check-chat.
func TestRandomExpressions(t *testing.T) {
	folder := os.Getenv("TROUPE_CHAT_TEMPLATES")
	if folder == "" {
		t.Skip("make check-chat sets TROUPE_CHAT_TEMPLATES, a folder in which testdata/expressions.py has written random expressions")
	}
	expressionsIn(t, filepath.Join(folder, "expressions.json"))
}

func expressionsIn(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all expressions
	if err := json.Unmarshal(data, &all); err != nil || len(all.Rows) < 500 {
		t.Fatalf("%d rows, %v", len(all.Rows), err)
	}
	messages, err := ParseMessages(all.Messages)
	if err != nil {
		t.Fatal(err)
	}
	equal, failed, refused := 0, 0, 0
	for _, row := range all.Rows {
		got, err := rendered(row.Source, messages, all.Tools)
		switch {
		case err == nil && row.Error == "" && got == row.Text:
			equal++
		case err == nil:
			t.Errorf("%s: %q, want %q %s", row.Source, got, row.Text, row.Error)
		case strings.Contains(err.Error(), "panic") || strings.Contains(err.Error(), ".go:") || !errors.Is(err, ErrRender) &&
			!errors.Is(err, ErrTemplate):
			t.Errorf("%s: %v", row.Source, err)
		case row.Error != "":
			failed++
		case errors.Is(err, ErrTemplate) && strings.Contains(err.Error(), "Line: "): // the parser does not know it
			refused++
		case !strings.Contains(err.Error(), "not supported"):
			t.Errorf("%s: %v, want %q", row.Source, err, row.Text)
		default:
			refused++
			if !strings.Contains(err.Error(), "line ") {
				t.Errorf("%s: %v names no line", row.Source, err)
			}
		}
	}
	t.Logf("%d equal, %d fail for both, %d refused by name", equal, failed, refused)
}

func rendered(source string, messages []Message, tools json.RawMessage) (string, error) {
	template, err := Parse(source)
	if err != nil {
		return "", err
	}
	return template.Render(messages, Options{Tools: tools, Now: time.Now()})
}
