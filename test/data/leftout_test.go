package data

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestNamesLeftOut: a run and an evaluation read a file and a link to it once, and say what they leave out.
func TestNamesLeftOut(t *testing.T) {
	dir := t.TempDir()
	testrun.Write(t, filepath.Join(dir, "a.txt"), strings.Repeat("Every stage is an actor. ", 40))
	for name, to := range map[string]string{"b.txt": "a.txt", "gone.txt": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	want := []string{"1 of the matches are links to", `b.txt"`, "1 of the matches are not files",
		`gone.txt" (a broken link)`}
	out := filepath.Join(t.TempDir(), "out")
	pattern := filepath.Join(dir, "*.txt")
	_, events := testrun.Train(t, out, "data.train="+pattern, "run.steps=2", "run.eval_every=0")
	var said strings.Builder
	for _, e := range testrun.EventsOf[troupe.WarningEvent](events) {
		said.WriteString(e.Text)
	}
	got, err := troupe.Evaluate(t.Context(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out}, Data: []string{pattern}})
	if err != nil || got.Tokens != 999 {
		t.Errorf("%d targets, %v", got.Tokens, err)
	}
	for _, text := range []string{said.String(), strings.Join(got.Warnings, "\n")} {
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%q doesn't say %q", text, part)
			}
		}
	}
}
