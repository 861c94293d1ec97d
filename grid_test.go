package troupe_test

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
)

// TestGrid: under every grid the losses are those of one rank within the rounding of sums over ranks, and the
// same bits whenever it runs and under every schedule; a run goes on under another grid.
func TestGrid(t *testing.T) {
	for _, family := range []string{"gpt2", "llama"} {
		steps := sometimes(4, 12)
		base := []string{"model.family=" + family, fmt.Sprint("run.steps=", steps), fmt.Sprint("run.eval_every=", steps/2), fmt.Sprint("run.checkpoint_every=", steps/2), "model.kv_heads=4"}
		more := fmt.Sprint("run.steps=", steps+2)
		if family == "llama" {
			base = append(base, "model.kv_heads=2", "model.ffn=48")
		}
		want := filepath.Join(t.TempDir(), "want")
		train(t, want, base...)
		further := filepath.Join(t.TempDir(), "further")
		train(t, further, base...)
		train(t, further, append(append([]string{}, base...), more)...)
		for i, c := range []struct {
			name     string
			sets     []string
			schedule string // of the same bits
		}{
			{"dp2", []string{"parallel.data=2"}, ""},
			{"dp3 of 8 microbatches", []string{"parallel.data=3"}, ""},
			{"dp2 pp2", []string{"parallel.data=2", "pipeline.stages=2", "pipeline.schedule=1f1b"}, "gpipe"},
			{"dp3 pp2 with post-validation", []string{"parallel.data=3", "pipeline.stages=2", "pipeline.schedule=zb-h2", "pipeline.post_validation=true"}, "gpipe"},
			{"tp2", []string{"parallel.tensor=2"}, ""},
			{"tp2 sequence", []string{"parallel.tensor=2", "parallel.sequence=true"}, ""},
			{"tp2 pp2 dp2", []string{"parallel.tensor=2", "parallel.data=2", "pipeline.stages=2", "pipeline.schedule=1f1b"}, "zb-h1"},
			{"tp2 pp2 dp2 interleaved sequence", []string{"parallel.tensor=2", "parallel.data=2", "pipeline.stages=2", "pipeline.chunks=2", "pipeline.schedule=interleaved", "parallel.order=pp-dp-tp", "parallel.sequence=true"}, "zb-v"},
			{"tp2 pp4 recomputed", []string{"parallel.tensor=2", "pipeline.stages=4", "pipeline.schedule=zb-h1", "pipeline.recompute=full"}, "1f1b"},
		} {
			if family == "llama" && c.schedule == "" && !long || raceDetector && (family == "llama" || i%3 > 0) {
				continue // make check-grids runs all; races don't depend on the numbers
			}
			t.Run(family+" "+c.name, func(t *testing.T) {
				sets := append(append([]string{}, base...), c.sets...)
				out := filepath.Join(t.TempDir(), "out")
				train(t, out, sets...)
				nearFigures(t, want, out, 1e-5)
				again := filepath.Join(t.TempDir(), "again")
				train(t, again, sets...)
				sameFigures(t, out, again)
				sameState(t, out, again, steps)
				if c.schedule != "" { // another order of the same actions, and nothing beside them
					other := filepath.Join(t.TempDir(), "other")
					train(t, other, append(sets, "pipeline.schedule="+c.schedule, "parallel.overlap=false")...)
					sameFigures(t, out, other)
					sameState(t, out, other, steps)
				}
				// On one rank from there on.
				train(t, again, append(append([]string{}, base...), more)...)
				nearFigures(t, further, again, 1e-5)
				if report, err := checkpoint.Verify(stepDir(again, steps+2)); err != nil || !report.Intact() {
					t.Errorf("the checkpoint: %v, %v", report, err)
				}
			})
		}
	}
}

// nearFigures compares the losses of two runs line by line.
func nearFigures(t testing.TB, want, got string, relative float64) {
	t.Helper()
	nearFiguresBy(t, want, got, relative, relative)
}

// nearFiguresBy is nearFigures with another bound for gradients' norms.
func nearFiguresBy(t testing.TB, want, got string, relative, norm float64) {
	t.Helper()
	a, b := records(t, want), records(t, got)
	if len(a) != len(b) {
		t.Fatalf("%d lines, want %d", len(b), len(a))
	}
	for i := range a {
		for _, v := range []struct {
			name string
			x, y *float64
			by   float64
		}{{"loss", a[i].Loss, b[i].Loss, relative}, {"validation loss", a[i].ValLoss, b[i].ValLoss, relative}, {"gradient norm", a[i].GradNorm, b[i].GradNorm, norm}} {
			if (v.x == nil) != (v.y == nil) {
				t.Fatalf("line %d: one has no %s", i+1, v.name)
			}
			if v.x != nil && math.Abs(*v.x-*v.y) > v.by*math.Abs(*v.x) {
				t.Errorf("line %d: %s %.9g, want %.9g: %.2g apart", i+1, v.name, *v.y, *v.x, math.Abs(*v.x-*v.y)/math.Abs(*v.x))
			}
		}
	}
}

// TestGridTrace: of a grid one rank of each stage is traced.
func TestGridTrace(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	train(t, out, "parallel.tensor=2", "parallel.data=2", "pipeline.stages=2", "run.trace_every=3", "parallel.order=dp-pp-tp")
	traces := strings.Split(strings.TrimSpace(read(t, filepath.Join(out, "trace.jsonl"))), "\n")
	if len(traces) != 2 {
		t.Fatalf("%d traces", len(traces))
	}
	for _, line := range traces {
		var trace telemetry.Trace
		if err := json.Unmarshal([]byte(line), &trace); err != nil {
			t.Fatal(err)
		}
		table, err := scheduler.ReadCSV("trace", trace.Table)
		if err != nil || table.NumRanks() != 2 || len(trace.MS) != 2 || table.Microbatches != 4 || len(trace.MS[0]) != len(table.Ranks[0]) {
			t.Errorf("step %d: %d rows of times, table %+v, %v", trace.Step, len(trace.MS), table, err)
		}
	}
}
