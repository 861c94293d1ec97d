package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const mineConfig = `
[run]
out = "out"
steps = 8
eval_every = 4
checkpoint_every = 2
[model]
family = "stack"
stack = ["input", "dense out=8 act=gelu", "faulty", "dense out=4", "cross_entropy"]
[data]
format = "numbers"
[batch]
sequences = 8
microbatch = 2
[optimizer]
warmup_steps = 2
[pipeline]
stages = 2
`

// runMine runs the program mine with a fault in a folder, and returns its status and its messages.
func runMine(t *testing.T, dir, fault string, args ...string) (status int, says string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "mine", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "FAULT="+fault, "GORACE=atexit_sleep_ms=0")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), errs.String()
}

func mineFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine.toml"), []byte(mineConfig), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

// weights returns the weights of a run's last step.
func weights(t *testing.T, dir string) []byte {
	t.Helper()
	w, err := os.ReadFile(filepath.Join(dir, "out", "checkpoints", "step-00000008", "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestOwnFaults: if a custom layer or custom data fail during a run, one error names the layer, pass and
// microbatch, or the sample. The run ends in order and its last checkpoint is intact. Without the fault, training
// resumes from it and is bit-identical to a run that never failed.
func TestOwnFaults(t *testing.T) {
	well := mineFolder(t)
	if status, says := runMine(t, well, "", "run", "mine.toml"); status != 0 {
		t.Fatalf("status %d: %s", status, says)
	}
	want := weights(t, well)
	const layer = `stage \d failed in step 5: (stage \d: )?layer 2.faulty, `
	for _, c := range []struct {
		fault, says string
		more        []string
	}{
		{"panic", layer + `forward of microbatch 0: panic: out of ideas \(cli.\(\*faulty\).Forward own_test.go:\d+, .*`, nil},
		{"panic", layer + `forward of microbatch 0: panic: out of ideas \(cli.\(\*faulty\).Forward own_test.go:\d+, .*`,
			[]string{"--set", "pipeline.recompute=full"}},
		{"panic", `.*layer 2.faulty, forward of microbatch 0: panic: out of ideas \(cli.\(\*faulty\).Forward own_test.go:\d+, .*`,
			[]string{"--local-cluster", "2"}},
		{"panic in a validation",
			`stage \d failed in step 4: validation: (stage \d: )?layer 2.faulty, forward of microbatch 0: panic: out of ideas \(cli.*`, nil},
		{"call panic", layer + `forward of microbatch 0: add: panic: out of ideas \(cli.\(\*faulty\).Forward.func1 own_test.go:\d+\)`, nil},
		{"call error", layer + `forward of microbatch 0: add: out of ideas`, nil},
		{"output", layer + `forward of microbatch 0: unexpected tensor on an edge: it returned 0 outputs, want 1`, nil},
		{"nan", layer + `forward of microbatch 0: output 0 has not a finite number`, nil},
		{"gradient", layer +
			`input gradient of microbatch 0: unexpected tensor on an edge: it returned a gradient of float32\[8 2\] for input 0 of float32\[2 8\]`,
			nil},
		{"gradient panic", layer + `input gradient of microbatch 0: panic: out of ideas \(cli.*`, nil},
		{"weight panic", layer + `weight gradient of microbatch 0: panic: out of ideas \(cli.*`, nil},
		{"free", layer + `input gradient of microbatch 0: unexpected tensor on an edge: it freed float32\[2 8\], which it got as an input`, nil},
		{"read later",
			`loader failed in step \d: training data of step \d, samples \d to \d: sample \d+ of the run is sample (\d+) of 256: shelf \d+ is empty`,
			nil},
		{"read panic later",
			`loader failed in step \d: training data of step \d, samples \d to \d: sample \d+ of the run is sample \d+ of 256: panic: out of ideas \(cli.*`, nil},
		{"label later",
			`loader failed in step \d: training data of step \d, samples \d to \d: sample \d+ of the run is sample \d+ of 256: label outside the classes: field "y" has the label 4, but its 4 classes are numbered 0 to 3`, nil},
	} {
		t.Run(strings.Join(append([]string{c.fault}, c.more...), " "), func(t *testing.T) {
			t.Parallel()
			dir := mineFolder(t)
			status, says := runMine(t, dir, c.fault, append([]string{"run", "mine.toml", "--quiet"}, c.more...)...)
			// The checkpoint of step 4 may have lacked the stages' copies.
			if pattern := `^engine: ` + c.says + "\nengine: the last checkpoint is out/checkpoints/step-0000000[24]\n$"; status != exitFailed ||
				!regexp.MustCompile(pattern).MatchString(filepath.ToSlash(says)) {
				t.Fatalf("status %d, and it says\n%swant 1 and\n%s", status, says, pattern)
			}
			if status, says := runMine(t, dir, "", "ckpt", "verify", "out"); status != exitOK {
				t.Errorf("verify: status %d: %s", status, says)
			}
			if status, says := runMine(t, dir, "", "run", "mine.toml", "--quiet"); status != exitOK {
				t.Fatalf("without the fault: status %d: %s", status, says)
			}
			if !bytes.Equal(weights(t, dir), want) {
				t.Error("the weights are others than those of a run that never failed")
			}
		})
	}
}

// TestOwnOrder: a table whose passes are not in microbatch order gives a warning exactly if that changes the bits
// of the model's layers.
func TestOwnOrder(t *testing.T) {
	const apart = `["input", "dense out=8 act=gelu", "faulty", "dense out=4", "cross_entropy"]`
	const inOne = `["input", "dense out=8 act=gelu", "whole", "dense out=4", "cross_entropy"]`
	const split = "\n1F0,1F1,1F2,1F3,1I3,1I1,1I0,1I2,1W0,1W1,1W2,1W3\n"
	const last = "\n1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3\n"
	for _, c := range []struct{ name, stack, table, warns string }{
		{"input gradients of layers that make both apart", apart, "0F0,0F1,0F2,0F3,0I3,0I1,0I0,0I2,0W0,0W1,0W2,0W3" + split, ""},
		{"input gradients of a layer that makes both at once", inOne, "0F0,0F1,0F2,0F3,0I3,0I1,0I0,0I2,0W0,0W1,0W2,0W3" + split,
			"computes input gradients out of microbatch order"},
		{"forwards of the loss, which has no weight", apart, "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F3,1F1,1F0,1F2,1B0,1B1,1B2,1B3\n", ""},
		{"weight gradients", apart, "0F0,0F1,0F2,0F3,0B3,0B1,0B0,0B2" + last, "computes weight gradients out of microbatch order"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			train := func(schedule string) (dir, says string) {
				dir = mineFolder(t)
				if err := os.WriteFile(filepath.Join(dir, "mine.csv"), []byte(c.table), 0o666); err != nil {
					t.Fatal(err)
				}
				status, says := runMine(t, dir, "", "run", "mine.toml", "--quiet", "--set", "model.stack="+c.stack, "--set", "pipeline.schedule="+
					schedule)
				if status != exitOK {
					t.Fatalf("status %d: %s", status, says)
				}
				return dir, says
			}
			want, _ := train("1f1b")
			got, says := train("mine.csv")
			if !strings.Contains(says, c.warns) || c.warns == "" && says != "" {
				t.Errorf("it says %q, want %q in it", says, c.warns)
			}
			if same := bytes.Equal(weights(t, want), weights(t, got)); same != (c.warns == "") {
				t.Errorf("its weights have the bits of another schedule: %t", same)
			}
		})
	}
}
