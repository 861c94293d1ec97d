package data

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// keptIDs are the files of token ids in a run's folder.
func keptIDs(t *testing.T, out string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(out, "tokens", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestKeptIDs: a start tokenises what was not tokenised before, and nothing else.
func TestKeptIDs(t *testing.T) {
	tok := filepath.Join(t.TempDir(), "tokenizer.json")
	testrun.Write(t, tok, smallTokenizer(t, "he"))
	for _, format := range []string{"text", "documents"} {
		t.Run(format, func(t *testing.T) {
			sets := []string{"data.tokenizer=" + tok, "data.format=" + format}
			if format == "documents" {
				sets = append(sets, "data.train="+testrun.PairsOf(t, 60))
			}
			want := filepath.Join(t.TempDir(), "want")
			testrun.Train(t, want, sets...)
			files := keptIDs(t, want)
			if len(files) != 1 {
				t.Fatalf("the ids are in %q", files)
			}
			name := filepath.Base(files[0])
			good := testrun.Read(t, files[0])

			// One that goes on.
			out := filepath.Join(t.TempDir(), "out")
			testrun.Train(t, out, append(sets, "run.steps=3")...)
			if again := keptIDs(t, out); len(again) != 1 || filepath.Base(again[0]) != name || testrun.Read(t, again[0]) != good {
				t.Fatalf("another run keeps %q", again)
			}
			before, err := os.Stat(filepath.Join(out, "tokens", name))
			if err != nil {
				t.Fatal(err)
			}
			leftover := filepath.Join(out, "tokens", strings.Repeat("0f", 32)+".ids")
			foreign := filepath.Join(out, "tokens", "mine")
			testrun.Write(t, leftover, "of another text")
			testrun.Write(t, foreign, "of somebody's")
			testrun.Train(t, out, sets...)
			testrun.SameFigures(t, want, out)
			after, err := os.Stat(filepath.Join(out, "tokens", name))
			if err != nil || !os.SameFile(before, after) {
				t.Errorf("the ids were written again: %v", err)
			}
			if _, err := os.Stat(leftover); !os.IsNotExist(err) {
				t.Errorf("ids that nobody needs are there: %v", err)
			}
			testrun.Read(t, foreign)

			// What is damaged is made anew.
			out = filepath.Join(t.TempDir(), "out")
			testrun.Train(t, out, append(sets, "run.steps=3")...)
			testrun.Write(t, filepath.Join(out, "tokens", name), good[:len(good)-1]+"?")
			_, events := testrun.Train(t, out, sets...)
			testrun.SameFigures(t, want, out)
			warned := ""
			for _, e := range events {
				if w, ok := e.(troupe.WarningEvent); ok {
					warned += w.Text + "\n"
				}
			}
			if !strings.Contains(warned, name) || !strings.Contains(warned, "checksum") {
				t.Errorf("the warnings are %q", warned)
			}
			if testrun.Read(t, filepath.Join(out, "tokens", name)) != good {
				t.Error("the damaged file is there still")
			}
		})
	}

	// What is kept is what is trained on.
	out, want := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "want")
	testrun.Train(t, out, "data.tokenizer="+tok, "run.steps=3")
	testrun.Train(t, want, "data.tokenizer="+tok)
	file := keptIDs(t, out)[0]
	raw, err := hex.DecodeString(strings.TrimSuffix(filepath.Base(file), ".ids"))
	if err != nil {
		t.Fatal(err)
	}
	const vocab = 259
	whole := []byte(testrun.Read(t, file))
	c, err := data.ReadCorpus(bytes.NewReader(whole), int64(len(whole)), data.StoredKey(raw), vocab)
	if err != nil {
		t.Fatal(err)
	}
	var other bytes.Buffer
	if err := data.WriteCorpus(&other, data.StoredKey(raw), vocab, data.NewTokens(make([]int32, c.Len()))); err != nil {
		t.Fatal(err)
	}
	testrun.Write(t, file, other.String())
	testrun.Train(t, out, "data.tokenizer="+tok)
	a, b := testrun.Records(t, want), testrun.Records(t, out)
	if testrun.Figures(a[len(a)-1]) == testrun.Figures(b[len(b)-1]) {
		t.Error("the run has not read its kept ids")
	}

	// Another tokenizer has other ids.
	testrun.Write(t, tok, smallTokenizer(t, "hel"))
	out = filepath.Join(t.TempDir(), "out")
	testrun.Train(t, out, "data.tokenizer="+tok)
	if files := keptIDs(t, out); len(files) != 1 || files[0] == file || filepath.Base(files[0]) == filepath.Base(file) {
		t.Errorf("another tokenizer's ids are in %q", files)
	}
	// Bytes are as fast as a file of them.
	out = filepath.Join(t.TempDir(), "out")
	testrun.Train(t, out)
	if files := keptIDs(t, out); len(files) != 0 {
		t.Errorf("ids of bytes are in %q", files)
	}
}
