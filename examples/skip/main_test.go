package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main, register) }

const (
	folder     = "examples/skip"
	configFile = folder + "/config.toml"
)

// small makes steps quick.
var small = []string{"model.hidden=4", "batch.sequences=16", "batch.microbatch=2"}

// TestBits: the U-Net trains with the same bits under every layout, in one process and in four.
func TestBits(t *testing.T) {
	table := filepath.Join(t.TempDir(), "table.csv")
	if _, errs, status := exampletest.Program(t, "plan", configFile, "--set", "pipeline.schedule=zb-h1", "--format", "csv", "--out",
		table); status != 0 {
		t.Fatalf("plan ends with status %d: %s", status, errs)
	}
	layouts := append(exampletest.Layouts(), exampletest.Layout{Name: "a table of one's own",
		Sets: []string{"pipeline.stages=4", "pipeline.schedule=" + table}})
	want := exampletest.SameBits(t, configFile, layouts, small...)
	t.Run("local cluster", func(t *testing.T) {
		exampletest.Cluster(t, configFile, want, append(small, "pipeline.stages=4", "pipeline.schedule=zb-h1")...)
	})
	t.Run("eval", func(t *testing.T) {
		out, errs, status := exampletest.Program(t, "eval", "--from", want)
		if status != 0 || !strings.Contains(out, "360 samples") {
			t.Errorf("eval prints %q, and ends with status %d: %s", out, status, errs)
		}
	})
}

// TestBitsAdded: so it does where levels are added, and where a chunk begins or ends in the
// middle of a skip.
func TestBitsAdded(t *testing.T) {
	more := append(slices.Clone(small), `model.options=["skips=add"]`)
	exampletest.SameBits(t, configFile, []exampletest.Layout{
		{Name: "every layer alone", Sets: []string{"pipeline.stages=4", "pipeline.chunks=4", "pipeline.layout=E|t|t|t|t|t|t|t|t|t|t|t|t|t|t|tL"}},
		{Name: "the first and the last apart", Sets: []string{"pipeline.stages=3", "pipeline.layout=Et|t*12|ttL"}},
	}, more...)
}

// TestPlan: the table is checked and played, and the drawings have the skips.
func TestPlan(t *testing.T) {
	for _, c := range []struct {
		golden string
		args   []string
		shows  string
	}{
		{"1f1b.txt", nil, "skip      from chunk 0 to chunk 3"},
		{"zb-v.txt", []string{"--set", "pipeline.stages=2", "--set", "pipeline.schedule=zb-v"}, "skip      from chunk 0 to chunk 2"},
		{"", []string{"--format", "json"}, `"skip_credits": [[3,2],[4,3]]`},
		{"", []string{"--format", "svg"}, "4 ranks, 2 skips"},
		{"", []string{"--format", "html"}, `data-step="`},
		{"", []string{"--format", "perfetto"}, "skip activation from chunk"},
		{"", []string{"--format", "csv"}, "0F0,0F1"},
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
	for _, c := range []struct{ set, says string }{
		{"model.layers=4", "images of 8×8 cannot be halved 4 times: lower model.layers"},
		{"model.layers=100", "cannot be halved 100 times"},
		{"model.hidden=60000", "parameter \"down.0.weight\" has shape [60000 540000]: it must have from 1 to"},
		{`model.options=["skips=maybe"]`, `unknown option "skips=maybe" in model.options: use skips= with one of ["concat" "add" "none"]`},
		{"data.features=[\"p1\", \"p2\"]", "2 pixels do not form a square image"},
		{"pipeline.layout=Et*5|t*3|t*3|tL", "chunk 3 holds L where the model has t, as part 14 of 15"},
	} {
		_, errs, status := exampletest.Program(t, "run", configFile, "--set", "run.out="+filepath.Join(t.TempDir(), "out"), "--set", c.set)
		if status != 78 || !strings.Contains(errs, c.says) {
			t.Errorf("with %s it ends with status %d, and says %q; want 78 and %q", c.set, status, errs, c.says)
		}
	}
}

// TestMemory: what the plan says that tensors take, with those of skips that are under way, is
// about what they take.
func TestMemory(t *testing.T) {
	exampletest.Memory(t, configFile, 0.2, exampletest.Layouts())
}
