package bits

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestZero: with ZeRO each replica has a part of the optimizer's state, of gradients, and of weights, and every bit is
// that of plain replicas: of the figures, and of the checkpoints. A run goes on with ZeRO or without, under another
// grid.
func TestZero(t *testing.T) {
	dp2 := []string{"parallel.data=2"}
	dp3 := []string{"parallel.data=3"}
	dp2pp2 := []string{"parallel.data=2", "pipeline.stages=2", "pipeline.schedule=1f1b"}
	guessed := []string{"parallel.data=2", "pipeline.stages=2", "pipeline.schedule=zb-h2", "pipeline.post_validation=true"}
	split := []string{"parallel.tensor=2", "parallel.sequence=true", "parallel.data=2", "pipeline.stages=2", "pipeline.chunks=2",
		"pipeline.schedule=interleaved"}
	const zero1, zero2, zero3 = "parallel.zero=1", "parallel.zero=2", "parallel.zero=3"
	large := []string{"model.hidden=128"}
	llama := []string{"model.hidden=128", "model.family=llama", "model.ffn=160", "model.tie_embeddings=false"}
	for i, c := range []struct {
		name             string
		zero             string
		model, grid, new []string // it goes on under a new grid
	}{
		{"dp2", zero1, nil, dp2, dp3},
		{"frozen, sgd", zero1, []string{"model.freeze=embed", "model.tie_embeddings=false", "optimizer.name=sgd"}, dp3, dp2},
		{"bfloat16", zero1, []string{"device.dtype=bfloat16"}, []string{"parallel.data=3", "pipeline.stages=2", "pipeline.schedule=zb-h1"},
			dp2pp2},
		{"llama, with post-validation", zero1, []string{"model.family=llama", "model.ffn=48"}, guessed, split},
		{"with post-validation, clipped", zero1, []string{"optimizer.clip_norm=0.5"}, guessed, dp2},
		{"gpipe", zero1, []string{"optimizer.clip_norm=0.5"}, []string{"parallel.data=2", "pipeline.stages=2", "pipeline.schedule=gpipe"}, split},
		{"tensor groups", zero1, nil, split, dp2pp2},
		{"large parameters", zero1, []string{"model.hidden=128"}, dp2pp2, dp2},
		{"large parameters, frozen, bfloat16", zero1, []string{"model.hidden=128", "device.dtype=bfloat16", "model.freeze=['1']",
			"model.tie_embeddings=false"}, guessed, dp3},
		{"large parameters, tensor groups", zero1, []string{"model.hidden=128"}, split, dp2},
		{"dp8 of 8 microbatches", zero1, nil, []string{"parallel.data=8"}, dp3},
		{"gradients, dp8", zero2, large, []string{"parallel.data=8"}, dp3},
		{"gradients, llama, dp3 of 24, zb-h1", zero2, append(slices.Clone(llama), "model.layers=8", "batch.sequences=3", "batch.microbatch=1"),
			[]string{"parallel.data=3", "pipeline.stages=2", "pipeline.schedule=zb-h1"}, dp2},
		{"gradients, dp4, clipped, frozen, bfloat16", zero2, append(slices.Clone(large), "optimizer.clip_norm=0.5", "model.freeze=['1']",
			"device.dtype=bfloat16", "model.tie_embeddings=false"), []string{"parallel.data=4", "pipeline.chunks=4",
			"pipeline.schedule=breadth-first"}, guessed},
		{"gradients, llama, tensor groups", zero2, append(slices.Clone(llama), "model.layers=8", "model.hidden=192", "model.ffn=192"),
			[]string{"parallel.data=2", "parallel.tensor=2", "parallel.sequence=true", "pipeline.stages=2", "pipeline.chunks=4",
				"pipeline.schedule=breadth-first"}, dp2pp2},
		{"weights, dp2", zero3, append(slices.Clone(large), "model.layers=8"), dp2, dp3},
		{"weights, llama, 1f1b, uneven validation", zero3, append(slices.Clone(llama), "model.layers=12", "run.eval_batches=9",
			"data.val_fraction=0.005"), dp2pp2, split},
		{"weights, interleaved, tensor groups", zero3, append(slices.Clone(large), "model.layers=12", "model.hidden=192"), split, dp2},
		{"weights, dp4, clipped, frozen, bfloat16, zb-h1, uneven validation", zero3,
			append(slices.Clone(llama), "model.layers=12", "run.eval_batches=9", "data.val_fraction=0.005", "optimizer.clip_norm=0.5",
				"model.freeze=['1']", "device.dtype=bfloat16"), []string{"parallel.data=4", "pipeline.stages=2", "pipeline.schedule=zb-h1"}, dp3},
		{"weights, breadth-first, sgd, recomputed", zero3, append(slices.Clone(large), "model.layers=8", "optimizer.name=sgd",
			"pipeline.recompute=full", "model.dropout=0.1"), []string{"parallel.data=4", "pipeline.chunks=4", "pipeline.schedule=breadth-first"},
			dp2},
		{"weights, most of them frozen, bfloat16", zero3, append(slices.Clone(llama), "model.layers=8", "device.dtype=bfloat16",
			"model.freeze=['embed', '1-4', '6']"), []string{"parallel.data=4", "pipeline.stages=2"}, dp2},
		{"weights, tensor groups of other sizes, in a V", zero3, append(slices.Clone(large), "model.hidden=192", "model.layers=18",
			"model.ffn=192"), []string{"parallel.tensor=[1, 2]", "parallel.data=2", "pipeline.stages=2", "pipeline.chunks=2",
			"pipeline.schedule=zb-v", "pipeline.post_validation=false"}, dp2pp2},
		{"muon, tensor groups", zero1, []string{"optimizer.name=muon", "model.family=llama", "model.ffn=48"}, split, dp3},
		{"muon, with post-validation, clipped", zero1, []string{"optimizer.name=muon", "optimizer.clip_norm=0.5"}, guessed, split},
		{"muon, gradients, dp8, average", zero2, append(slices.Clone(large), "optimizer.name=muon", "optimizer.ema=0.9"),
			[]string{"parallel.data=8"}, dp3},
		{"muon, weights, bfloat16, interleaved, tensor groups", zero3, append(slices.Clone(large), "optimizer.name=muon", "model.layers=12",
			"model.hidden=192", "device.dtype=bfloat16", "optimizer.state_dtype=bfloat16"), split, dp2},
		{"muon, experts", zero1, []string{"optimizer.name=muon", "model.family=qwen3_moe", "model.expert_ffn=24"}, dp2, dp3},
		{"weights, multi-token prediction", zero3, append(slices.Clone(large), "model.layers=8", "model.mtp_layers=1"), dp2pp2, dp2pp2},
	} {
		few := i == 1 || i == 9 || i == 16 || c.name == "muon, tensor groups"
		if testrun.RaceDetector && i%12 != 3 || !testrun.RaceDetector && !testrun.Long && !few {
			continue // races don't depend on the numbers; make check-grids runs all
		}
		t.Run(c.name, func(t *testing.T) {
			begin := slices.Concat([]string{"run.steps=4", "run.eval_every=2", "run.checkpoint_every=2", "model.kv_heads=4"}, c.model, c.grid)
			want, got := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "got")
			testrun.Train(t, want, begin...)
			testrun.Train(t, got, append(slices.Clone(begin), c.zero)...)
			testrun.SameFigures(t, want, got)
			testrun.SameState(t, want, got, 2)
			testrun.SameState(t, want, got, 4)
			// The plain run goes on with ZeRO, and the other without.
			further := slices.Concat([]string{"run.steps=6", "run.eval_every=2", "run.checkpoint_every=2", "model.kv_heads=4"}, c.model, c.new)
			testrun.Train(t, want, append(slices.Clone(further), zero1)...)
			testrun.Train(t, got, further...)
			testrun.SameFigures(t, want, got)
			testrun.SameState(t, want, got, 6)
			testrun.Train(t, got, slices.Concat(further[:4], c.model, []string{"run.steps=7"})...) // on one rank
		})
	}
}

// TestZeroIdle: ZeRO-2 and 3 that save no memory are warned of, and have the bits of plain replicas all the same.
func TestZeroIdle(t *testing.T) {
	for zero, sets := range map[string][]string{
		"parallel.zero=2": {"parallel.data=2", "pipeline.stages=2", "pipeline.schedule=1f1b"},
		"parallel.zero=3": {"parallel.data=2", "model.layers=1"},
	} {
		begin := append([]string{"run.steps=3", "run.eval_every=2", "run.checkpoint_every=2"}, sets...)
		want, got := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "got")
		testrun.Train(t, want, begin...)
		run := testrun.Start(t, testrun.NewConfig(t, got, append(slices.Clone(begin), zero)...))
		var warnings []string
		for e := range run.Events() {
			if w, is := e.(troupe.WarningEvent); is {
				warnings = append(warnings, w.Text)
			}
		}
		if _, err := run.Wait(); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "saves no memory here") }) {
			t.Errorf("%s: warnings %q", zero, warnings)
		}
		testrun.SameFigures(t, want, got)
		testrun.SameState(t, want, got, 2)
		testrun.SameState(t, want, got, 3)
	}
}

// TestZeroNear: figures are those of one rank within 1e-5 over many steps, and a run goes on there.
func TestZeroNear(t *testing.T) {
	if testrun.RaceDetector {
		t.Skip("races don't depend on the numbers")
	}
	base := []string{"model.hidden=128", "model.layers=8", "run.eval_every=5", "run.checkpoint_every=0"}
	steps := testrun.Sometimes(5, 50)
	further := append(slices.Clone(base), fmt.Sprint("run.steps=", steps+2))
	base = append(base, fmt.Sprint("run.steps=", steps))
	want := filepath.Join(t.TempDir(), "want")
	testrun.Train(t, want, base...)
	testrun.Train(t, want, further...)
	for _, sets := range [][]string{
		{"parallel.zero=2", "parallel.data=4", "pipeline.chunks=4", "pipeline.schedule=breadth-first"},
		{"parallel.zero=3", "parallel.data=2"},
	} {
		out := filepath.Join(t.TempDir(), "out")
		testrun.Train(t, out, append(slices.Clone(base), sets...)...)
		testrun.Train(t, out, further...)
		testrun.NearFigures(t, want, out, 1e-5)
	}
}

// TestZeroSnapshot: a snapshot of weights that replicas share, or ranks of a context group have, writes what the checkpoint of
// its step does.
func TestZeroSnapshot(t *testing.T) {
	for _, grid := range [][]string{
		{"parallel.data=3", "batch.sequences=3", "parallel.zero=3"},
		{"parallel.context=2", "parallel.zero=3"},
		{"parallel.context=2", "pipeline.stages=2", "pipeline.schedule=1f1b"},
	} {
		out, o := filepath.Join(t.TempDir(), "out"), troupe.TextOptions{Prompt: "the ", Tokens: 24, Temperature: 1, Seed: 3}
		run := testrun.Start(t, testrun.NewConfig(t, out, append([]string{"run.steps=5", "run.checkpoint_every=1", "run.keep=0",
			"run.eval_every=0", "model.hidden=132", "model.layers=8", "batch.sequences=4"}, grid...)...))
		testrun.Until(t, run, testrun.Step(2))
		s := testrun.Snapshot(t, run, troupe.SnapshotOptions{})
		testrun.Finish(t, run)
		of := troupe.GenerateOptions{TextOptions: o}
		of.From = testrun.StepDir(out, int(s.Step()))
		var b strings.Builder
		if err := troupe.Generate(context.Background(), of, func(text []byte) error { b.Write(text); return nil }); err != nil {
			t.Fatal(err)
		}
		if got := testrun.Written(t, s, o); got != b.String() {
			t.Errorf("%v: the snapshot of step %d writes %q, the checkpoint %q", grid, s.Step(), got, b.String())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
