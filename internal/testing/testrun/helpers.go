package testrun

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/telemetry"
)

// Long reports whether to run tests that take minutes. make check-long, make check-grids and make check-bits set it.
var Long = os.Getenv("TROUPE_LONG_TESTS") != ""

// Sometimes returns short, or full if Long is set.
func Sometimes(short, full int) int {
	if Long {
		return full
	}
	return short
}

// Span returns keys that make SmallRun a run of a few steps, more if Long is set. It validates and writes a
// checkpoint in its middle and at its end.
func Span() (middle, end int, sets []string) {
	end = Sometimes(4, 6)
	middle = end / 2
	return middle, end, []string{fmt.Sprint("run.steps=", end), fmt.Sprint("run.eval_every=", middle),
		fmt.Sprint("run.checkpoint_every=", middle)}
}

// SmallRun is a configuration whose steps take milliseconds. It uses everything that could make results depend on the
// layout: dropout, tied embeddings, and a clip_norm below every gradient norm.
const SmallRun = `
[run]
seed = 7
steps = 6
eval_every = 3
eval_batches = 2
checkpoint_every = 3
keep = 0

[model]
layers = 4
hidden = 16
heads = 4
context = 16
dropout = 0.1
tie_embeddings = true

[data]
train = ["testdata/troupe.txt"]

[batch]
sequences = 8
microbatch = 1

[optimizer]
warmup_steps = 2
clip_norm = 0.05
`

// NewConfig returns SmallRun with an output folder and keys set as on the command line.
func NewConfig(t testing.TB, out string, sets ...string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("small.toml", []byte(SmallRun), append([]string{"run.out=" + out}, sets...), nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// Train runs SmallRun to its end.
func Train(t testing.TB, out string, sets ...string) (troupe.Result, []troupe.Event) {
	t.Helper()
	return Finish(t, Start(t, NewConfig(t, out, sets...)))
}

// Start starts a run.
func Start(t testing.TB, cfg *config.Config) *troupe.Run {
	t.Helper()
	run, err := troupe.Start(context.Background(), cfg, troupe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// Finish reads a run's events to the end; the run must not fail.
func Finish(t testing.TB, run *troupe.Run) (troupe.Result, []troupe.Event) {
	t.Helper()
	events := Drain(run)
	result, err := run.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return result, events
}

// Drain reads a run's events to the end.
func Drain(run *troupe.Run) []troupe.Event {
	var events []troupe.Event
	for e := range run.Events() {
		events = append(events, e)
	}
	return events
}

// Records reads a run's metrics.jsonl.
func Records(t testing.TB, out string) []telemetry.Record {
	t.Helper()
	all, err := telemetry.Read(filepath.Join(out, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Figures formats the parts of a record that do not depend on the clock, with their exact bits.
func Figures(r telemetry.Record) string {
	bits := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%x (%g)", math.Float64bits(*v), *v)
	}
	return fmt.Sprintf("step %d: loss %s, mtp_loss %s, val_loss %s, grad_norm %s, lr %s, tokens %d, skipped %v",
		r.Step, bits(r.Loss), bits(r.MTPLoss), bits(r.ValLoss), bits(r.GradNorm), bits(r.LR), r.Tokens, r.Skipped)
}

// SameFigures compares the metrics.jsonl of two runs line by line.
func SameFigures(t testing.TB, want, got string) {
	t.Helper()
	a, b := Records(t, want), Records(t, got)
	for i := range min(len(a), len(b)) {
		if x, y := Figures(a[i]), Figures(b[i]); x != y {
			t.Fatalf("line %d differs:\nwant %s\ngot  %s", i+1, x, y)
		}
	}
	if len(a) != len(b) {
		t.Fatalf("%d lines, want %d", len(b), len(a))
	}
}

// StepDir returns the folder of the checkpoint of a step.
func StepDir(out string, step int) string {
	return filepath.Join(out, "checkpoints", fmt.Sprintf("step-%08d", step))
}

// SameState compares the weights and the optimizer state of two runs at a step, byte by byte.
func SameState(t testing.TB, want, got string, step int) {
	t.Helper()
	model := "model.safetensors"
	if _, err := os.Stat(filepath.Join(StepDir(want, step), "trained.safetensors")); err == nil {
		model = "trained.safetensors"
	}
	for _, name := range []string{model, "optimizer.safetensors"} {
		if a, b := Read(t, filepath.Join(StepDir(want, step), name)), Read(t, filepath.Join(StepDir(got, step), name)); a != b {
			t.Fatalf("%s of step %d differs", name, step)
		}
	}
}

// Read reads a file.
func Read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Write writes a file with its folders, and returns its path.
func Write(t testing.TB, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// CopyTree copies a folder with its links.
func CopyTree(t testing.TB, from string) (to string) {
	t.Helper()
	to = filepath.Join(t.TempDir(), "copy")
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case d.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, b, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// Tree describes everything in a folder except the lock file, whose content names its last owner. A missing folder
// counts as empty.
func Tree(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) && path == dir {
			return nil
		}
		if err != nil || path == dir || d.Name() == ".lock" {
			return err
		}
		fmt.Fprintf(&b, "%s %v", strings.TrimPrefix(path, dir), d.Type())
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " → %s", link)
		case d.Type().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %d %x", len(content), sha256.Sum256(content))
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// EventsOf returns the events of one type.
func EventsOf[E any](events []troupe.Event) []E {
	var found []E
	for _, e := range events {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// Rewind copies a finished run and changes the copy to the state that a crash after a step's checkpoint would leave.
func Rewind(t testing.TB, out string, step int) string {
	t.Helper()
	back := CopyTree(t, out)
	later, err := filepath.Glob(filepath.Join(back, "checkpoints", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range later {
		if path == StepDir(back, step) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	return back
}

// OpenStore opens the checkpoints of a run.
func OpenStore(t testing.TB, out string) *checkpoint.Store {
	t.Helper()
	fsys, err := checkpoint.OpenFS(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fsys.Close() })
	store, err := checkpoint.OpenStore(fsys, ".")
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// Floats returns a tensor of a checkpoint.
func Floats(t testing.TB, from *checkpoint.Tensors, name string) (safetensors.Info, []float32) {
	t.Helper()
	info, _ := from.Info(name)
	b, err := from.Bytes(name)
	if err != nil {
		t.Fatal(err)
	}
	values, err := safetensors.Float32s(info.DType, b)
	if err != nil {
		t.Fatal(err)
	}
	return info, values
}
