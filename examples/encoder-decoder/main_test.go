package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/data/samples"
	"github.com/troupe-ml/troupe/internal/testing/exampletest"
	"github.com/troupe-ml/troupe/tensorops"
)

func TestMain(m *testing.M) { exampletest.Main(m, main, register) }

const (
	folder     = "examples/encoder-decoder"
	configFile = folder + "/config.toml"
)

// small makes steps quick; the layout is that of each test.
var small = []string{"model.hidden=16", "model.heads=2", "model.ffn=24", "batch.sequences=16", "batch.microbatch=2", "pipeline.layout="}

// TestBits: the model trains with the same bits under every layout.
func TestBits(t *testing.T) {
	layouts := append(exampletest.Layouts(),
		exampletest.Layout{Name: "what the encoder makes passes by a chunk",
			Sets: []string{"pipeline.stages=4", "pipeline.layout=Et*5|Et|t*3|t*4,L"}},
		exampletest.Layout{Name: "an empty stage between", Sets: []string{"pipeline.stages=4", "pipeline.layout=Et*5||Et*4|t*4,L"}},
		exampletest.Layout{Name: "every layer alone", Sets: []string{"pipeline.stages=4", "pipeline.chunks=4",
			"pipeline.layout=E|t|t|t|t|t|E|t|t|t|t|t|t|t|t|L"}},
	)
	want := exampletest.SameBits(t, configFile, layouts, small...)
	t.Run("local cluster", func(t *testing.T) {
		exampletest.Cluster(t, configFile, want, append(small, "pipeline.stages=3", "pipeline.chunks=2", "pipeline.microbatch_group_size=4")...)
	})
	t.Run("predict", func(t *testing.T) {
		out, errs, status := exampletest.Program(t, "predict", "--from", want, "--microbatch", "7")
		lines, lengths := 0, make(map[int]bool)
		for line := range strings.Lines(out) {
			var p struct {
				Class  []int
				Logits [][]float64
			}
			if err := json.Unmarshal([]byte(line), &p); err != nil || len(p.Class) != len(p.Logits) || len(p.Class) == 0 ||
				len(p.Logits[0]) != targets {
				t.Fatalf("predict prints %s: %v", line, err)
			}
			lines++
			lengths[len(p.Class)] = true
		}
		if status != 0 || lines != 1000 || len(lengths) < 2 {
			t.Errorf("predict prints %d lines of %d lengths, and ends with status %d: %s", lines, len(lengths), status, errs)
		}
	})
}

// TestPlan: the table is checked and played, and the drawings have the skips.
func TestPlan(t *testing.T) {
	interleaved := []string{"--set", "pipeline.stages=2", "--set", "pipeline.chunks=4", "--set", "pipeline.layout="}
	for _, c := range []struct {
		golden string
		args   []string
		shows  string
	}{
		{"1f1b.txt", nil, "encoder-decoder"},
		{"interleaved.txt", interleaved, "skip      from chunk"},
		{"", append(interleaved, "--format", "perfetto"), "skip activation from chunk"},
	} {
		out, errs, status := exampletest.Program(t, append([]string{"plan", configFile}, c.args...)...)
		if status != 0 || !strings.Contains(out, c.shows) {
			t.Errorf("plan %v has no %q; status %d, %s\n%.2000s", c.args, c.shows, status, errs, out)
		}
		if c.golden != "" {
			exampletest.Golden(t, folder, c.golden, out)
		}
	}
}

// TestMistakes: sizes that don't fit each other are clear errors before anything runs.
func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		set, says string
		status    int
	}{
		{"model.heads=5", "model.hidden = 64 is not a multiple of model.heads = 5", 78},
		{"model.context=4", `ids, more than model.context = 4: set model.context to`, 1},
		{"data.format=csv", "no training data is given", 78},
		{"pipeline.layout=Ett|ttt|ttttt|ttttL", "pipeline.layout", 78},
	} {
		_, errs, status := exampletest.Program(t, "run", configFile, "--quiet", "--set", "run.out="+filepath.Join(t.TempDir(), "out"), "--set",
			c.set)
		if status != c.status || !strings.Contains(errs, c.says) {
			t.Errorf("with %s it ends with status %d, and says %q; want %d and %q", c.set, status, errs, c.status, c.says)
		}
	}
}

// TestData: numbers are read as they are written, and a microbatch is as long as its longest.
func TestData(t *testing.T) {
	for n, want := range map[int]string{
		0: "zero", 7: "seven", 13: "thirteen", 20: "twenty", 99: "ninety nine", 100: "one hundred", 2040: "two thousand forty",
		7777: "seven thousand seven hundred seventy seven",
	} {
		if got := strings.Join(inWords(n), " "); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	var batch []samples.Sample
	for _, n := range []int{7, 2040} {
		s, err := samples.At(numbers{}, n)
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, s)
	}
	got, err := samples.Batch(numbers{}, batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]int32{
		{8, padding, padding, 3, 30, 23},
		{begin, 8, padding, padding, padding, begin, 3, 1, 5, 1},
		{8, end, tensorops.IgnoreTarget, tensorops.IgnoreTarget, tensorops.IgnoreTarget, 3, 1, 5, 1, end},
	} {
		if len(got[i].Int) != len(want) {
			t.Fatalf("field %d has %v", i, got[i])
		}
		for k, id := range want {
			if got[i].Int[k] != id {
				t.Errorf("field %d is %v, want %v", i, got[i].Int, want)
				break
			}
		}
	}
}

// TestMemory: what the plan says that tensors take is about what they take.
func TestMemory(t *testing.T) {
	exampletest.Memory(t, configFile, 0.2, exampletest.Layouts(), "pipeline.layout=", "model.context=6") // the longest source
}
