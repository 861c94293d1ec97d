package grid

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestGridStages: stages whose tensor groups differ in size train as one rank does, with the same bits whenever they run,
// under every schedule and whichever way tensors take, and a run goes on under another grid.
func TestGridStages(t *testing.T) {
	for _, family := range []string{"gpt2", "llama"} {
		if testrun.RaceDetector && family == "llama" {
			continue // races don't depend on the numbers
		}
		steps := testrun.Sometimes(5, 50)
		base := []string{"model.family=" + family, fmt.Sprint("run.steps=", steps), "run.eval_every=5", "run.checkpoint_every=0",
			"model.kv_heads=4", "model.layers=4"}
		if family == "llama" {
			base = append(base, "model.kv_heads=2", "model.ffn=48")
		}
		tied, untied := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "untied")
		testrun.Train(t, tied, base...)
		testrun.Train(t, untied, append(append([]string{}, base...), "model.tie_embeddings=false")...)
		further := filepath.Join(t.TempDir(), "further")
		testrun.Train(t, further, base...)
		testrun.Train(t, further, append(append([]string{}, base...), fmt.Sprint("run.steps=", steps+3))...)
		for i, c := range []struct {
			name    string
			sets    []string
			another []string // of the same bits
		}{
			{"tp 1, 2", []string{"parallel.tensor=[1, 2]", "pipeline.stages=2", "pipeline.schedule=1f1b"},
				[]string{"parallel.edges=scatter", "pipeline.schedule=gpipe"}},
			{"tp 2, 1, untied", []string{"parallel.tensor=[2, 1]", "pipeline.stages=2", "pipeline.schedule=zb-h1", "model.tie_embeddings=false"},
				[]string{"parallel.edges=direct", "pipeline.schedule=1f1b"}},
			{"tp 1, 2, 2, 1", []string{"parallel.tensor=[1, 2, 2, 1]", "pipeline.stages=4", "pipeline.schedule=1f1b"},
				[]string{"parallel.edges=broadcast", "pipeline.schedule=zb-h1"}},
			{"tp 2, 1, 4 and dp 2", []string{"parallel.tensor=[2, 1, 4]", "pipeline.stages=3", "parallel.data=2", "parallel.zero=1",
				"pipeline.schedule=1f1b", "model.kv_heads=4"},
				[]string{"parallel.edges=scatter", "parallel.zero=0"}},
			{"tp 1, 2, 4 by positions", []string{"parallel.tensor=[1, 2, 4]", "pipeline.stages=3", "parallel.sequence=true",
				"pipeline.schedule=1f1b", "model.kv_heads=4"},
				[]string{"pipeline.schedule=zb-h1", "pipeline.recompute=full"}},
			{"tp 2, 1 interleaved", []string{"parallel.tensor=[2, 1]", "pipeline.stages=2", "pipeline.chunks=2", "pipeline.schedule=interleaved"},
				[]string{"parallel.edges=broadcast", "pipeline.schedule=breadth-first"}},
			{"tp 1, 2 in a U", []string{"parallel.tensor=[1, 2]", "pipeline.stages=2", "pipeline.chunks=2", "pipeline.schedule=u-shape",
				"pipeline.layout=Et|tt|tL"},
				[]string{"parallel.edges=direct"}},
			{"tp 2, 1, 2 in a U and dp 2, by positions", []string{"parallel.tensor=[2, 1, 2]", "pipeline.stages=3", "pipeline.chunks=2",
				"pipeline.schedule=u-shape", "pipeline.layout=Et|t|t|tL", "parallel.data=2", "parallel.zero=1", "parallel.sequence=true"},
				[]string{"parallel.zero=0"}},
			{"tp 1, 2 in a V, by positions", []string{"parallel.tensor=[1, 2]", "pipeline.stages=2", "pipeline.chunks=2", "pipeline.schedule=zb-v",
				"parallel.sequence=true", "parallel.data=2"}, nil},
		} {
			if testrun.RaceDetector && i%6 > 0 || family == "llama" && i%testrun.Sometimes(4, 2) > 0 {
				continue // what is left has every way of tensors
			}
			t.Run(family+" "+c.name, func(t *testing.T) {
				sets := append(append([]string{}, base...), c.sets...)
				want := tied
				if strings.Contains(c.name, "untied") {
					want = untied
				}
				if strings.Contains(strings.Join(c.sets, " "), "model.kv_heads=4") && family == "llama" {
					want = filepath.Join(t.TempDir(), "want")
					testrun.Train(t, want, append(append([]string{}, base...), "model.kv_heads=4")...)
				}
				out, again := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "again")
				testrun.Train(t, out, sets...)
				testrun.NearFiguresBy(t, want, out, 1e-5, 1e-4) // after so many steps a gradient's norm differs by more than the loss
				testrun.Train(t, again, append(sets, c.another...)...)
				testrun.SameFigures(t, out, again)
				testrun.SameState(t, out, again, steps)
				if want != tied {
					return
				}
				// On one rank from there on.
				testrun.Train(t, again, append(append([]string{}, base...), fmt.Sprint("run.steps=", steps+3))...)
				testrun.NearFiguresBy(t, further, again, 1e-5, 1e-4)
				if report, err := checkpoint.Verify(testrun.StepDir(again, steps+3)); err != nil || !report.Intact() {
					t.Errorf("the checkpoint: %v, %v", report, err)
				}
			})
		}
	}
}

// TestGridStagesZero: replicas of stages of different tensor sizes share gradients or weights, without another bit.
func TestGridStagesZero(t *testing.T) {
	for zero, more := range map[string][]string{
		"parallel.zero=2": {"model.layers=8", "parallel.data=4", "batch.sequences=4", "batch.microbatch=1"},
		"parallel.zero=3": {"parallel.data=2", "model.layers=12", "model.hidden=192"},
	} {
		sets := append([]string{"model.hidden=128", "model.tie_embeddings=false", "run.steps=2", "run.eval_every=2", "run.checkpoint_every=2",
			"batch.sequences=4",
			"parallel.tensor=[1, 2]", "pipeline.stages=2", "pipeline.schedule=1f1b"}, more...)
		want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
		testrun.Train(t, want, sets...)
		testrun.Train(t, out, append(sets, zero)...)
		testrun.SameFigures(t, want, out)
		testrun.SameState(t, want, out, 2)
	}
}

// TestGridStagesDocuments: microbatches of every length, of positions that each stage's ranks share alike.
func TestGridStagesDocuments(t *testing.T) {
	sets := []string{"data.train=" + testrun.PairsOf(t, 120), "data.format=documents", "model.dropout=0", "batch.microbatch=1"}
	want := filepath.Join(t.TempDir(), "want")
	testrun.Train(t, want, sets...)
	for _, more := range []string{"parallel.sequence=true", "parallel.edges=scatter"} {
		out := filepath.Join(t.TempDir(), "out")
		testrun.Train(t, out, append(sets, "parallel.tensor=[4, 2]", "pipeline.stages=2", more)...)
		testrun.NearFigures(t, want, out, 1e-5)
	}
}

// TestGridMTP: a weight that three stages use, each of whose ranks have other rows of it.
func TestGridMTP(t *testing.T) {
	sets := []string{"model.mtp_layers=1", "model.layers=2", "run.steps=12"}
	want, out, again := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "again")
	testrun.Train(t, want, sets...)
	sets = append(sets, "pipeline.stages=4", "pipeline.layout=E|tt|m|L", "parallel.tensor=[2, 1, 4, 1]")
	testrun.Train(t, out, sets...)
	testrun.NearFigures(t, want, out, 1e-5)
	testrun.Train(t, again, append(sets, "pipeline.schedule=gpipe")...)
	testrun.SameState(t, out, again, 12)
}
