package config

import (
	"strings"
	"testing"
)

// TestSynonyms: each word means an existing key, and none hides a key of the same name.
func TestSynonyms(t *testing.T) {
	for word, s := range synonyms {
		if lookup(s.key) == nil {
			t.Errorf("%s: there is no key %s", word, s.key)
		}
		if strings.ToLower(word) != word || strings.Contains(word, "-") {
			t.Errorf("%s: Synonym never looks for such a word", word)
		}
		for _, f := range schema {
			if f.name() == word && word != "data" { // parallel.data: a folder of data is meant more often
				t.Errorf("%s is the name of %s, and hides it", word, f.key)
			}
		}
	}
	for word, want := range map[string]string{"lr": "optimizer.lr", "learning-rate": "optimizer.lr", "run.steps": "run.steps",
		"context": "model.context", "Epochs": "run.steps", "wandb": ""} {
		if got, _ := Synonym(word); got != want {
			t.Errorf("Synonym(%q) = %q, want %q", word, got, want)
		}
	}
}

// TestUnknownKeySynonym: the error of a key that other programs have names the key.
func TestUnknownKeySynonym(t *testing.T) {
	for text, want := range map[string]string{
		"[optimizer]\nlearning_rate = 1e-3": "optimizer.learning_rate: unknown key; use optimizer.lr",
		"learning_rate = 1e-3":              "learning_rate: unknown key; use optimizer.lr",
		"[run]\nepochs = 3":                 "run.epochs: unknown key; use run.steps: there are no epochs",
		"[model]\nlora_rank = 8":            "model.lora_rank: unknown key; use adapter.rank",
		"[batch]\nsize = 8":                 "use one of the keys of [batch]",
	} {
		_, err := Parse("c.toml", []byte(text+"\n[data]\ntrain = [\"a.txt\"]\n"), nil, nil)
		if strings.HasPrefix(text, "learning_rate") {
			_, err = Parse("c.toml", []byte(text), nil, nil)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
