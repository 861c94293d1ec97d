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

	"github.com/troupe-ml/troupe/stages/layertest"
)

// asProgram makes the test binary the program, and so its workers' too.
const asProgram = "TROUPE_EXAMPLE_CUSTOM_LAYER"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main() // does not return
	}
	os.Exit(m.Run())
}

// TestGated: its gradients are the slopes, and it keeps to what a layer must keep to.
func TestGated(t *testing.T) {
	layertest.Check(t, &gated{width: 6}, layertest.Options{Name: "gated", Inputs: []layertest.Tensor{{Shape: []int{layertest.B, 6}}}})
	layertest.Check(t, &gated{width: 5}, layertest.Options{Name: "gated", Inputs: []layertest.Tensor{{Shape: []int{layertest.B, 3, 5}}}})
}

// program runs it, and returns what it prints.
func program(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("custom-layer %s: %v\n%s", strings.Join(args, " "), err, &errs)
	}
	return out.String()
}

// train runs the configuration for some steps in a folder.
func train(t *testing.T, out, steps string, more ...string) {
	t.Helper()
	program(t, append([]string{"run", "config.toml", "--quiet", "--set", "data.train=../digits/digits-train.csv", "--set",
		"data.val=../digits/digits-test.csv",
		"--set", "run.out=" + out, "--set", "run.steps=" + steps, "--set", "run.eval_every=4", "--set", "run.checkpoint_every=4", "--set",
		"optimizer.warmup_steps=2",
		"--set", "optimizer.decay=constant"}, more...)...)
}

// losses are the figures of a run, as text.
func losses(t *testing.T, out string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(out, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var of struct {
			Step       int                `json:"step"`
			Loss       *float64           `json:"loss"`
			ValLoss    *float64           `json:"val_loss"`
			GradNorm   *float64           `json:"grad_norm"`
			Metrics    map[string]float64 `json:"metrics"`
			ValMetrics map[string]float64 `json:"val_metrics"`
		}
		if err := json.Unmarshal(line, &of); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(of)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(again))
	}
	return all
}

// TestListed: the layer is known, as workers that join compare it.
func TestListed(t *testing.T) {
	if out := program(t, "doctor"); !strings.Contains(out, "layer gated") {
		t.Errorf("doctor prints\n%s", out)
	}
}

// TestSameBits: whatever the layout, the order and the processes, the figures are those of one stage
// to the last bit.
func TestSameBits(t *testing.T) {
	set := func(pairs ...string) (args []string) {
		for _, p := range pairs {
			args = append(args, "--set", "pipeline."+p)
		}
		return args
	}
	one := filepath.Join(t.TempDir(), "one")
	train(t, one, "10", set("stages=1")...)
	want := losses(t, one)
	if len(want) != 11 {
		t.Fatalf("%d lines of metrics, want 11: %s", len(want), want)
	}
	for name, args := range map[string][]string{
		"1f1b":        set("schedule=1f1b"),
		"recomputed":  set("schedule=1f1b", "recompute=full"),
		"interleaved": set("schedule=interleaved", "stages=2", "chunks=2"),
		"zb-h1":       set("schedule=zb-h1", "recompute=full"),
		"zb-v":        set("schedule=zb-v", "chunks=2"),
		"processes":   append(set("schedule=zb-h1"), "--local-cluster", "3"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "out")
			train(t, out, "10", args...)
			if got := losses(t, out); !slices.Equal(got, want) {
				t.Errorf("the figures are\n%s\nin one stage\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
	t.Run("resumed with other stages", func(t *testing.T) {
		t.Parallel()
		out := filepath.Join(t.TempDir(), "out")
		train(t, out, "4", set("stages=3", "schedule=zb-v", "chunks=2")...)
		train(t, out, "8", set("stages=1")...)
		train(t, out, "10", set("stages=2", "schedule=1f1b")...)
		if got := losses(t, out); !slices.Equal(got, want) {
			t.Errorf("the figures are\n%s\nin one piece\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}
