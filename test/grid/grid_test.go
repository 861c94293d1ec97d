package grid

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
)

// TestGrid: under every grid the losses are those of one rank within the rounding of sums over ranks, and the
// same bits whenever it runs and under every schedule; a run goes on under another grid.
func TestGrid(t *testing.T) {
	for _, family := range []string{"gpt2", "llama"} {
		steps := testrun.Sometimes(4, 12)
		base := []string{"model.family=" + family, fmt.Sprint("run.steps=", steps), fmt.Sprint("run.eval_every=", steps/2),
			fmt.Sprint("run.checkpoint_every=", steps/2), "model.kv_heads=4"}
		more := fmt.Sprint("run.steps=", steps+2)
		if family == "llama" {
			base = append(base, "model.kv_heads=2", "model.ffn=48")
		}
		want := filepath.Join(t.TempDir(), "want")
		testrun.Train(t, want, base...)
		further := filepath.Join(t.TempDir(), "further")
		testrun.Train(t, further, base...)
		testrun.Train(t, further, append(append([]string{}, base...), more)...)
		for i, c := range []struct {
			name     string
			sets     []string
			schedule string // of the same bits
		}{
			{"dp2", []string{"parallel.data=2"}, ""},
			{"dp3 of 8 microbatches", []string{"parallel.data=3"}, ""},
			{"dp2 pp2", []string{"parallel.data=2", "pipeline.stages=2", "pipeline.schedule=1f1b"}, "gpipe"},
			{"dp3 pp2 with post-validation", []string{"parallel.data=3", "pipeline.stages=2", "pipeline.schedule=zb-h2",
				"pipeline.post_validation=true"}, "gpipe"},
			{"tp2", []string{"parallel.tensor=2"}, ""},
			{"tp2 sequence", []string{"parallel.tensor=2", "parallel.sequence=true"}, ""},
			{"tp2 pp2 dp2", []string{"parallel.tensor=2", "parallel.data=2", "pipeline.stages=2", "pipeline.schedule=1f1b"}, "zb-h1"},
			{"tp2 pp2 dp2 interleaved sequence", []string{"parallel.tensor=2", "parallel.data=2", "pipeline.stages=2", "pipeline.chunks=2",
				"pipeline.schedule=interleaved", "parallel.order=pp-dp-tp", "parallel.sequence=true"}, "zb-v"},
			{"tp2 pp4 recomputed", []string{"parallel.tensor=2", "pipeline.stages=4", "pipeline.schedule=zb-h1", "pipeline.recompute=full"}, "1f1b"},
		} {
			if family == "llama" && c.schedule == "" && !testrun.Long || testrun.RaceDetector && (family == "llama" || i%3 > 0) {
				continue // make check-grids runs all; races don't depend on the numbers
			}
			t.Run(family+" "+c.name, func(t *testing.T) {
				sets := append(append([]string{}, base...), c.sets...)
				out := filepath.Join(t.TempDir(), "out")
				testrun.Train(t, out, sets...)
				testrun.NearFigures(t, want, out, 1e-5)
				again := filepath.Join(t.TempDir(), "again")
				testrun.Train(t, again, sets...)
				testrun.SameFigures(t, out, again)
				testrun.SameState(t, out, again, steps)
				if c.schedule != "" { // another order of the same actions, and nothing beside them
					other := filepath.Join(t.TempDir(), "other")
					testrun.Train(t, other, append(sets, "pipeline.schedule="+c.schedule, "parallel.overlap=false")...)
					testrun.SameFigures(t, out, other)
					testrun.SameState(t, out, other, steps)
				}
				// On one rank from there on.
				testrun.Train(t, again, append(append([]string{}, base...), more)...)
				testrun.NearFigures(t, further, again, 1e-5)
				if report, err := checkpoint.Verify(testrun.StepDir(again, steps+2)); err != nil || !report.Intact() {
					t.Errorf("the checkpoint: %v, %v", report, err)
				}
			})
		}
	}
}

// TestGridTrace: of a grid one rank of each stage is traced.
func TestGridTrace(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	testrun.Train(t, out, "parallel.tensor=2", "parallel.data=2", "pipeline.stages=2", "run.trace_every=3", "parallel.order=dp-pp-tp")
	traces := strings.Split(strings.TrimSpace(testrun.Read(t, filepath.Join(out, "trace.jsonl"))), "\n")
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
