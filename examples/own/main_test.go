package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// asProgram makes the test binary the program, and so its workers' too.
const asProgram = "TROUPE_EXAMPLE_OWN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main() // does not return
	}
	os.Exit(m.Run())
}

// own runs the program, and returns what it prints.
func own(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("own %s: %v\n%s", strings.Join(args, " "), err, &errs)
	}
	return out.String()
}

// TestRun: the schedule trains over two processes, with the losses of 1f1b in one.
func TestRun(t *testing.T) {
	losses := func(name string, more ...string) (all []float64) {
		out := filepath.Join(t.TempDir(), name)
		own(t, append([]string{"run", "config.toml", "--quiet", "--set", "data.train=../../testdata/troupe.txt", "--set", "run.out=" + out,
			"--set", "run.steps=5", "--set", "run.eval_every=0", "--set", "optimizer.warmup_steps=1"}, more...)...)
		text, err := os.ReadFile(filepath.Join(out, "metrics.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			var record struct{ Loss *float64 }
			if err := json.Unmarshal(line, &record); err != nil {
				t.Fatal(err)
			}
			if record.Loss != nil {
				all = append(all, *record.Loss)
			}
		}
		return all
	}
	want := losses("1f1b", "--set", "pipeline.schedule=1f1b")
	got := losses("waves", "--local-cluster", "2")
	if len(want) != 5 || !slices.Equal(got, want) {
		t.Errorf("the losses are %v, with 1f1b in one process %v", got, want)
	}
}

// TestListed: the schedule is one like the others.
func TestListed(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"plan", "--schedule", "waves", "--stages", "2", "--microbatches", "4", "--format", "csv"}, "0F0,0F1,0B0,0B1,0F2,0F3,0B2,0B3"},
		{[]string{"plan", "--help"}, "auto, waves"},
		{[]string{"doctor"}, "schedule waves"},
	} {
		if out := own(t, c.args...); !strings.Contains(out, c.want) {
			t.Errorf("own %v prints\n%s\nwant %q in it", c.args, out, c.want)
		}
	}
}
