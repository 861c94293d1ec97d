package infer

import (
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/chat"
	"github.com/troupe-ml/troupe/internal/testing/documents"
)

// TestPromptIds: a prompt begins as the tokenizer begins a text, once, and does not end as one.
func TestPromptIds(t *testing.T) {
	v := documents.Read(t)
	for of, want := range map[string]string{"pairs, <s> A </s>": "<s> ▁A", "pairs, <s> A": "<s> ▁A",
		"pairs, the token that begins a text ends it": "</s> A", "pairs": "A"} {
		m, err := open(ModelOptions{From: v.Write(t, of)}, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, prompt := range []string{"A", strings.Fields(want)[0] + "A"} {
			said, err := m.Text()
			if err != nil {
				t.Fatal(err)
			}
			ids, err := encodePrompt(m, said, TextOptions{Prompt: prompt}, func(int) error { return nil })
			var names []string
			for _, id := range ids {
				name, _ := m.Tokenizer.Token(id)
				names = append(names, name)
			}
			if got := strings.Join(names, " "); err != nil || prompt == "A" && got != want || strings.Count(got, strings.Fields(want)[0]) > 1 &&
				of != "pairs" {
				t.Errorf("%s: the prompt %q has the ids of %q, want %q, %v", of, prompt, got, want, err)
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestStops: generation stops at the ends of all files and at the one of the chat template.
func TestStops(t *testing.T) {
	v := documents.Read(t)
	for of, want := range map[string][]int32{"chatml, another eos": {0, 4}, "chatml": {4}, "gemma": {6, 2}, "no end": {2}} {
		m, err := open(ModelOptions{From: v.Write(t, of)}, true)
		if err != nil {
			t.Fatal(err)
		}
		said, err := m.Text()
		if err != nil {
			t.Fatal(err)
		}
		if got := said.Stops([]chat.Message{{Role: "user", Content: "q"}}, chat.Options{}); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", of, got, want)
		}
		if got := said.Stops(nil, chat.Options{}); !slices.Equal(got, said.Talk.Ends) {
			t.Errorf("%s, after a prompt: %v, want %v", of, got, said.Talk.Ends)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
