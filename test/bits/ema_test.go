package bits

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// emaRun has a moving average of a tied weight and of frozen layers, which have none, beside a narrow state.
var emaRun = []string{"model.family=gpt2", "optimizer.ema=0.75", "optimizer.state_dtype=int8", `model.freeze=["0"]`}

// TestExactEMA: the moving averages are the same under every layout, and after a resume.
func TestExactEMA(t *testing.T) {
	_, _, few := testrun.Span()
	sets := slices.Concat(emaRun, few)
	want := filepath.Join(t.TempDir(), "out")
	testrun.Train(t, want, sets...)
	for i, l := range layouts {
		if testrun.Long || i%9 == 3 {
			sameUnder(t, want, l.name, slices.Concat(sets, l.sets))
		}
	}
	sameUnder(t, want, "ahead", slices.Concat(sets, muonAhead))
}

// TestZeroEMA: where replicas share the state, every bit is that of replicas with whole states.
func TestZeroEMA(t *testing.T) {
	sets := []string{"run.steps=4", "run.checkpoint_every=2", "parallel.data=2", "model.hidden=128", "optimizer.ema=0.75"}
	want := filepath.Join(t.TempDir(), "out")
	testrun.Train(t, want, sets...)
	for _, zero := range []string{"parallel.zero=1", "parallel.zero=3"} {
		out := filepath.Join(t.TempDir(), "out")
		testrun.Train(t, out, append(slices.Clone(sets), zero)...)
		testrun.SameState(t, want, out, 4)
	}
}

// TestEMA compares the averages with sums in float64 of the weights of each step. They begin at the weights that the run starts from.
func TestEMA(t *testing.T) {
	from, out := testrun.Trained(t), filepath.Join(t.TempDir(), "out")
	const last = 6 // step of the run from which it starts
	testrun.Train(t, out, "model.from="+from, "run.checkpoint_every=1", "run.keep=0", "optimizer.ema=0.75")
	var before *checkpoint.Checkpoint
	names := openAt(t, out, 1).Model().Names()
	for _, name := range names {
		_, average := testrun.Floats(t, openAt(t, from, last).Model(), name)
		want := make([]float64, len(average))
		for i, v := range average {
			want[i] = float64(v)
		}
		for step := 1; step <= 3; step++ {
			before = openAt(t, out, step)
			_, w := testrun.Floats(t, before.Model(), name)
			info, got := testrun.Floats(t, before.Optimizer(), "ema."+name)
			if info.DType != "F32" || len(got) != len(w) {
				t.Fatalf("%s has an average of type %s and %d numbers", name, info.DType, len(got))
			}
			for i := range want {
				want[i] = 0.75*want[i] + 0.25*float64(w[i])
				if math.Abs(float64(got[i])-want[i]) > 1e-6*math.Max(math.Abs(want[i]), 1e-3) {
					t.Fatalf("step %d: the average of element %d of %s is %g, want %g", step, i, name, got[i], want[i])
				}
			}
		}
	}
}

// TestExportEMA: export writes the averages in place of the weights that were trained, and an evaluation uses them. A run without
// averages is refused, and so is a resume with another decay.
func TestExportEMA(t *testing.T) {
	_, end, few := testrun.Span()
	out, to := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "model")
	testrun.Train(t, out, append(slices.Clone(emaRun), few...)...)
	if _, err := troupe.Export(context.Background(), troupe.ExportOptions{From: out, To: to, EMA: true}); err != nil {
		t.Fatal(err)
	}
	run := openAt(t, out, end)
	exported, err := checkpoint.OpenAt(to)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = exported.Close() }()
	averages := 0
	for _, name := range run.Model().Names() {
		from, stored := run.Model(), name
		if _, has := run.Optimizer().Info("ema." + name); has {
			from, stored = run.Optimizer(), "ema."+name
			averages++
		}
		_, want := testrun.Floats(t, from, stored)
		if _, got := testrun.Floats(t, exported.Model(), name); !slices.Equal(got, want) {
			t.Errorf("%s is not that of the run", name)
		}
		if frozen := strings.Contains(name, ".h.0."); frozen != (from == run.Model()) {
			t.Errorf("%s: frozen %v, but an average: %v", name, frozen, from != run.Model())
		}
	}
	if averages == 0 {
		t.Error("the run has no averages")
	}
	o := troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out}}
	plain, err := troupe.Evaluate(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.EMA = true
	average, err := troupe.Evaluate(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if plain.Loss == average.Loss {
		t.Error("the average has the loss of the weights")
	}
	without := testrun.Trained(t)
	_, err = troupe.Export(context.Background(), troupe.ExportOptions{From: without, To: filepath.Join(t.TempDir(), "no"), EMA: true})
	if !errors.Is(err, troupe.ErrOptions) || !strings.Contains(err.Error(), "optimizer.ema") {
		t.Errorf("a run without averages: %v", err)
	}
	testrun.Refused(t, testrun.NewConfig(t, without, "optimizer.ema=0.9"), troupe.Options{}, troupe.ErrOutput, "optimizer.ema", "0.9")
}
