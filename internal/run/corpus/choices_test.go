package corpus

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadChoices: an item has a prompt or a question, choices and an answer; each mistake is one error with file and row.
func TestReadChoices(t *testing.T) {
	file := filepath.Join(t.TempDir(), "items.jsonl")
	read := func(line string) ([]ChoiceItem, error) {
		good := `{"question": "Is it?", "choices": ["yes", "no"], "answer": "B"}` + "\n"
		if err := os.WriteFile(file, []byte(good+line), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadChoices([]string{file})
	}
	items, err := read(`{"prompt": "a b", "choices": ["c", "d", "e"], "answer": 2, "id": 7}`)
	if err != nil || len(items) != 2 || items[0].Prompt != "Question: Is it?\nAnswer:" || items[0].Answer != 1 || items[1].Answer != 2 ||
		items[1].Row != 2 {
		t.Fatalf("%+v, %v", items, err)
	}
	for line, want := range map[string]string{
		`{"choices": ["a", "b"], "answer": 0}`:                                 `either "prompt" or "question"`,
		`{"prompt": "p", "question": "q", "choices": ["a", "b"], "answer": 0}`: `either "prompt" or "question"`,
		`{"prompt": 3, "choices": ["a", "b"], "answer": 0}`:                    `"prompt" is 3, but must be a string`,
		`{"prompt": "p", "choices": ["a", null], "answer": 0}`:                 `"choices" must be a list of strings`,
		`{"prompt": "p", "choices": "a", "answer": 0}`:                         `"choices" must be a list of strings`,
		`{"prompt": "p", "choices": ["a"], "answer": 0}`:                       `"choices" must have 2 to 100 texts, not 1`,
		`{"prompt": "p", "choices": ["a", " "], "answer": 0}`:                  `choice 2 is empty`,
		`{"prompt": "p", "choices": ["a", "b"]}`:                               `there is no "answer"`,
		`{"prompt": "p", "choices": ["a", "b"], "answer": 2}`:                  `"answer" is 2, but there are 2 choices: use 0 to 1, or "A" to "B"`,
		`{"prompt": "p", "choices": ["a", "b"], "answer": "C"}`:                `there are 2 choices`,
		`{"prompt": "p", "choices": ["a", "b"], "answer": "first"}`:            `must be an index from 0 or a letter`,
		`{"prompt": "p", "choices": ["a", "b"], "answer": null}`:               `must be an index from 0 or a letter`,
		`[1]`: "JSON array",
		`{"a`: "row 2",
	} {
		if _, err := read(line); err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "items.jsonl, row 2: ") != 1 {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

func FuzzReadChoice(f *testing.F) {
	f.Add([]byte(`{"prompt": "p", "choices": ["a", "b"], "answer": "B"}`))
	f.Add([]byte(`{"question": "p", "choices": ["a", "b"], "answer": 1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if item, err := readChoice(line); err == nil && (item.Answer < 0 || item.Answer >= len(item.Choices)) {
			t.Errorf("%+v", item)
		}
	})
}
