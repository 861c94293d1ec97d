package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
)

// long enables tests that take minutes (make check-bits).
var long = os.Getenv("TROUPE_LONG_TESTS") != ""

// beside runs a test in parallel with others that also wait most of the time.
func beside(t *testing.T) {
	if !raceDetector { // with it there is work for all cores
		t.Parallel()
	}
}

// smallRun trains quickly and uses everything that could depend on the placement: dropout, validation, checkpoints, and a
// clip_norm below every gradient's norm.
const smallRun = `
[run]
seed = 7
steps = 6
eval_every = 3
eval_batches = 2
checkpoint_every = 2
keep = 0

[model]
layers = 6
hidden = 32
heads = 4
context = 32
dropout = 0.1

[batch]
sequences = 8
microbatch = 1

[optimizer]
warmup_steps = 2
clip_norm = 0.05
`

// fewSteps reduces smallRun to four steps, with a checkpoint at each; make check-bits runs all six.
func fewSteps() (steps int, sets []string) {
	if steps = 4; long {
		steps = 6
	}
	return steps, []string{fmt.Sprint("run.steps=", steps), "run.checkpoint_every=1"}
}

// families has, for each family, the keys that make smallRun's model one of it.
var families = map[string][]string{
	"gpt2, tied":    {"model.family=gpt2", "model.tie_embeddings=true"},
	"llama, untied": {"model.family=llama", "model.kv_heads=2", "model.tie_embeddings=false"},
}

// inBFloat16 adds the families in bfloat16, with a residual stream in float32 and in bfloat16.
func inBFloat16(families map[string][]string) map[string][]string {
	all := maps.Clone(families)
	for name, sets := range families {
		all[name+", bfloat16"] = slices.Concat(sets, []string{"device.dtype=bfloat16"})
	}
	all["gpt2, bfloat16, residual float32"] = slices.Concat(families["gpt2, tied"],
		[]string{"device.dtype=bfloat16", "device.residual=float32"})
	return all
}

// layout is a way to distribute the same training.
type layout struct {
	name   string
	stages int
	sets   []string
}

func layouts(t testing.TB) []layout {
	return []layout{
		{"1f1b", 4, []string{"pipeline.schedule=1f1b"}},
		{"interleaved", 4, []string{"pipeline.chunks=2", "pipeline.schedule=interleaved"}},
		{"zb-v", 4, []string{"pipeline.schedule=zb-v"}},
		{"a table", 4, []string{"pipeline.schedule=" + tableFile(t)}},
		{"ahead", 4, []string{"pipeline.schedule=zb-h2", "pipeline.post_validation=true"}},
	}
}

// tableFile writes a user's table.
func tableFile(t testing.TB) string {
	t.Helper()
	table, err := scheduler.Generate(scheduler.Spec{Schedule: scheduler.Auto, Ranks: 4, Chunks: 1, Microbatches: 8, MaxInFlight: 5})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "mine.csv")
	if err := os.WriteFile(path, []byte(table.CSV()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// keys returns a run's --set values.
func keys(t testing.TB, out string, more ...[]string) []string {
	t.Helper()
	text, err := filepath.Abs("../testdata/troupe.txt")
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{"run.out=" + out, fmt.Sprintf("data.train=[%q]", text)}, slices.Concat(more...)...)
}

// trainHere trains in this process.
func trainHere(t testing.TB, c command) {
	t.Helper()
	cfg, err := config.Parse("test.toml", []byte(c.Config), c.Sets, nil)
	if err != nil {
		t.Fatal(err)
	}
	run, err := troupe.Start(context.Background(), cfg, troupe.Options{FromStep: c.FromStep, Requests: c.Requests})
	if err == nil {
		_, err = run.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sameRun checks that two runs have bit-identical figures, weights and optimizer state at a step.
func sameRun(t testing.TB, want, got string, step int) {
	t.Helper()
	sameFigures(t, want, got)
	for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
		if a, b := read(t, stepFile(want, step, name)), read(t, stepFile(got, step, name)); a != b {
			t.Fatalf("%s of step %d differs", name, step)
		}
	}
}

func stepFile(out string, step int, name string) string {
	return filepath.Join(out, "checkpoints", fmt.Sprintf("step-%08d", step), name)
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func sameFigures(t testing.TB, want, got string) {
	t.Helper()
	a, b := figures(t, want), figures(t, got)
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("line %d of metrics.jsonl differs:\nwant %s\ngot  %s", i+1, a[i], b[i])
		}
	}
	if len(a) != len(b) {
		t.Fatalf("metrics.jsonl has %d lines, want %d", len(b), len(a))
	}
}

// figures returns the parts of metrics.jsonl that don't depend on the clock.
func figures(t testing.TB, out string) (lines []string) {
	t.Helper()
	all, err := telemetry.Read(filepath.Join(out, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	bits := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%x (%g)", math.Float64bits(*v), *v)
	}
	for _, r := range all {
		lines = append(lines, fmt.Sprintf("step %d: loss %s, val_loss %s, grad_norm %s, lr %s, tokens %d, skipped %v",
			r.Step, bits(r.Loss), bits(r.ValLoss), bits(r.GradNorm), bits(r.LR), r.Tokens, r.Skipped))
	}
	return lines
}

// workers returns the names of n workers.
func workers(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("worker-%d", i))
	}
	return names
}

// TestBits: losses, gradient norms, weights and optimizer state are bit-identical to those of one process, for any number of
// processes and any schedule, also if the run resumes with another number of processes and again in one.
func TestBits(t *testing.T) {
	groups := make(map[int]*group)
	for _, n := range []int{1, 2, 4} {
		groups[n] = newGroup(t, new(group))
	}
	for n, g := range groups {
		g.join(t, workers(n)...)
	}
	steps, few := fewSteps()
	all := inBFloat16(families)
	all["llama, dpo"] = slices.Concat(families["llama, untied"], []string{"preference.loss=dpo", "data.format=documents",
		"data.train=" + testrun.AnswersOf(t, 40, false), "batch.sequences=16", "batch.microbatch=2"})
	all["llama, muon"] = slices.Concat(families["llama, untied"], []string{muon})
	for family, sets := range all {
		sets = slices.Concat(sets, few)
		rare := slices.ContainsFunc([]string{"bfloat16", "muon", "dpo"}, func(s string) bool { return strings.Contains(family, s) })
		if raceDetector && rare {
			continue
		}
		want := filepath.Join(t.TempDir(), "want")
		trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
		for i, l := range layouts(t) {
			if raceDetector && i%3 != 2 || !raceDetector && !long && (i%2 == 0) == strings.HasPrefix(family, "llama") ||
				rare && i%3 != 0 && !long {
				continue // races don't depend on the numbers; make check-bits runs all layouts by all families
			}
			t.Run(family+", "+l.name, func(t *testing.T) {
				stages := []string{fmt.Sprintf("pipeline.stages=%d", l.stages)}
				out := filepath.Join(t.TempDir(), "out")
				run := command{Config: smallRun, Sets: keys(t, out, sets, stages, l.sets)}
				// From the start, and from checkpoints, each under another number.
				numbers := [][]int{{1, 2, 4}, {4, 1, 2}, {2, 4, 1}}[i%3]
				if !long {
					numbers = numbers[:2]
				}
				for j, n := range numbers {
					run.FromStep, run.Workers = 2*j, n
					if busy := groups[n].train(t, run); busy != n {
						t.Errorf("%d workers had ranks, want %d", busy, n)
					}
					sameRun(t, want, out, steps)
				}
				run.FromStep = steps - 1 // from a step by whose name it has not gone on before, else nothing would be trained
				trainHere(t, run)
				sameRun(t, want, out, steps)
			})
		}
	}
}
