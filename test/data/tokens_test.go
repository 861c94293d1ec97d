package data

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestForeignTokenizer: the weights of a directory know the ids of their own tokenizer.
// Where that is none of ours, all that takes text says why.
func TestForeignTokenizer(t *testing.T) {
	c := testrun.TinyModels["llama"]
	dir := testrun.Directory(t, c, testrun.TensorsOf(t, c), nil)
	const asIDs = `data.format = "uint16"`
	for _, tt := range []struct {
		name, file string
		want       string
		advises    bool // to train on token ids
	}{
		{"none", "", "has no tokenizer.json", true},
		{"another kind", `{"version":"1.0","model":{"type":"Strange","vocab":[["a",0]]}}`, `the type is "Strange"`, true},
		{"half of one", `{"version":"1.0","model":{`, "not valid JSON: unexpected end", false},
	} {
		path := testrun.Write(t, filepath.Join(dir, "tokenizer.json"), tt.file)
		if tt.file == "" {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		for way, read := range ways {
			err := read(t, dir)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Count(err.Error(), "tokenizer.json") != 1 {
				t.Errorf("%s, %s: error %v, want %q in it, and the file's name once", tt.name, way, err, tt.want)
				continue
			}
			if training := way == "train" || way == "check"; training && strings.Contains(err.Error(), asIDs) != tt.advises {
				t.Errorf("%s, %s: error %v, to train on token ids is advised: %v", tt.name, way, err, !tt.advises)
			}
		}
		ids := testrun.Write(t, filepath.Join(t.TempDir(), "ids.bin"), strings.Repeat("\x01\x00\x02\x00", 400))
		if err := troupe.Check(testrun.FromConfig(t, dir, "data.format=uint16", "data.train="+ids)); err != nil {
			t.Errorf("%s, with token ids: %v", tt.name, err)
		}
		o := troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: dir}, Data: []string{ids}, Format: "uint16"}
		if _, err := troupe.Evaluate(t.Context(), o); err != nil {
			t.Errorf("%s, with token ids: %v", tt.name, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	testrun.Finish(t, testrun.Start(t, testrun.FromConfig(t, dir, "data.tokenizer=bytes"))) // by a person's word
}
