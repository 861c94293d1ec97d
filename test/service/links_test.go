package service

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestLinksInARun: a run's folder may have come out of an archive that somebody else
// packed. Wherever a symbolic link stands in it, and wherever it points, a run writes
// its own files alone.
func TestLinksInARun(t *testing.T) {
	want := testrun.Trained(t)
	for _, tt := range []struct {
		name    string
		refused bool // else the run puts its own entry in the link's place
	}{
		{".lock", true},
		{"config.toml", true},
		{"metrics.jsonl", true},
		{"trace.jsonl", true},
		{"checkpoints", true},
		{"checkpoints/step-00000006", true},
		{"checkpoints/step-00000006/trainer.json", true},
		{"checkpoints/step-00000006/model.safetensors", true},
		{"checkpoints/last", false},
		{"checkpoints/best", false},
		{".tmp-config.toml", false},
		{".tmp-metrics.jsonl", false},
		{"checkpoints/.tmp-last", false},
		{"checkpoints/.tmp-step-00000009", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for kind, target := range map[string]func(t *testing.T, out, outside string) string{
				"to a file": func(t *testing.T, _, outside string) string {
					return testrun.Write(t, filepath.Join(outside, "thesis.txt"), "all of it")
				},
				"to a folder": func(t *testing.T, _, outside string) string {
					testrun.Write(t, filepath.Join(outside, "thesis.txt"), "all of it")
					return outside
				},
				"to nothing": func(_ *testing.T, _, outside string) string { return filepath.Join(outside, "new") },
				"to what it was": func(t *testing.T, out, outside string) string {
					moved := filepath.Join(outside, "moved")
					if err := os.Rename(filepath.Join(out, tt.name), moved); err != nil && !os.IsNotExist(err) {
						t.Fatal(err)
					}
					return moved
				},
				"inside": func(t *testing.T, out, _ string) string {
					testrun.Write(t, filepath.Join(out, "notes.txt"), "mine")
					depth := strings.Count(tt.name, "/")
					return strings.Repeat("../", depth) + "notes.txt"
				},
			} {
				t.Run(kind, func(t *testing.T) {
					out, outside := testrun.CopyTree(t, want), t.TempDir()
					link := filepath.Join(out, tt.name)
					to := target(t, out, outside)
					if err := os.RemoveAll(link); err != nil {
						t.Fatal(err)
					}
					if err := os.Symlink(to, link); err != nil {
						t.Fatal(err)
					}
					before, all := testrun.Tree(t, outside), testrun.Tree(t, out)
					run, err := troupe.Start(context.Background(), testrun.NewConfig(t, out, "run.steps=9", "run.trace_every=1"), troupe.Options{})
					if err == nil {
						_, err = run.Wait()
					}
					switch {
					case !tt.refused && err != nil:
						t.Errorf("it is refused: %v", err)
					case !tt.refused:
						if now, err := os.Readlink(link); err == nil && now == to {
							t.Errorf("%s still points to %s", link, now)
						}
					case err == nil:
						t.Error("it is accepted")
					case !strings.Contains(err.Error(), link+" is a symbolic link"):
						t.Errorf("error %v, want %s in it", err, link)
					default:
						if after := testrun.Tree(t, out); after != all {
							t.Errorf("the folder had\n%sit has\n%s", all, after)
						}
					}
					if after := testrun.Tree(t, outside); after != before {
						t.Errorf("outside there was\n%sthere is\n%s", before, after)
					}
					if kind == "inside" && testrun.Read(t, filepath.Join(out, "notes.txt")) != "mine" {
						t.Error("notes.txt was written")
					}
				})
			}
		})
	}
}

// TestOutputFolderIsALink: where the folder itself lies is its user's own choice.
func TestOutputFolderIsALink(t *testing.T) {
	elsewhere, link := t.TempDir(), filepath.Join(t.TempDir(), "out")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	testrun.Train(t, link)
	if result, _ := testrun.Train(t, link, "run.steps=8"); result.Step != 8 {
		t.Errorf("it ended at step %d", result.Step)
	}
	if _, err := os.Stat(testrun.StepDir(elsewhere, 8)); err != nil {
		t.Error(err)
	}
}
