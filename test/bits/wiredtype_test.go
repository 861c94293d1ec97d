package bits

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestWireDType: what is rounded between chunks changes losses a little, says so, and is the same under every
// schedule that has the same chunks.
func TestWireDType(t *testing.T) {
	for _, family := range []string{"gpt2", "llama"} {
		base := []string{"model.family=" + family, "model.kv_heads=4", "run.steps=4", "run.eval_every=2", "run.checkpoint_every=4",
			"model.mtp_layers=1", "pipeline.layout=Ett|ttmL"}
		exact, want := filepath.Join(t.TempDir(), "exact"), filepath.Join(t.TempDir(), "want")
		testrun.Train(t, exact, append(base, "pipeline.stages=2")...)
		rounded := append(slices.Clone(base), "pipeline.stages=2", "pipeline.wire_dtype=bfloat16")
		testrun.Train(t, want, rounded...)
		last := func(out string) string { all := testrun.Records(t, out); return testrun.Figures(all[len(all)-1]) }
		if last(exact) == last(want) {
			t.Errorf("%s: rounding changes nothing", family)
		}
		testrun.NearFigures(t, exact, want, 0.02)
		for _, sets := range [][]string{
			{"pipeline.schedule=zb-h1"},
			{"pipeline.schedule=zb-h2", "pipeline.post_validation=true"},
			{"pipeline.recompute=full"},
		} {
			got := filepath.Join(t.TempDir(), "got")
			testrun.Train(t, got, slices.Concat(rounded, sets)...)
			if t.Run(family+strings.Join(sets, " "), func(t *testing.T) {
				testrun.SameFigures(t, want, got)
				testrun.SameState(t, want, got, 4)
			}); t.Failed() {
				return
			}
		}
	}
}

// TestWireDTypeWarns: losses that depend on the cuts are announced.
func TestWireDTypeWarns(t *testing.T) {
	_, events := testrun.Train(t, filepath.Join(t.TempDir(), "out"), "pipeline.stages=2", "pipeline.wire_dtype=bfloat16", "run.steps=2")
	if !slices.ContainsFunc(events, func(e troupe.Event) bool {
		w, ok := e.(troupe.WarningEvent)
		return ok && strings.Contains(w.Text, "pipeline.wire_dtype") && strings.Contains(w.Text, "2 chunks")
	}) {
		t.Errorf("no warning among %v", events)
	}
}
