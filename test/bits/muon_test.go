package bits

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// muons are runs with Muon: with matrices of query, key and value in one parameter, apart, and of query and gate in one.
var muons = []struct {
	name string
	sets []string
}{
	{"gpt2, tied", []string{"model.family=gpt2"}},
	{"llama, untied, original scale", []string{"model.family=llama", "model.kv_heads=2", "model.tie_embeddings=false",
		"optimizer.muon_scale=original"}},
	{"gpt2, multi-token prediction, bfloat16", []string{"model.family=gpt2", "model.mtp_layers=1", "device.dtype=bfloat16"}},
	{"phi3, frozen layers", []string{"model.family=phi3", "model.kv_heads=2", `model.freeze=["embed", "0"]`}},
	{"qwen3_5_text", []string{"model.family=qwen3_5_text", "model.kv_heads=2"}},
}

// muonAhead applies updates before the norm is known, and rolls back those that are clipped.
var muonAhead = []string{"pipeline.stages=2", "pipeline.schedule=zb-h1", "pipeline.post_validation=true"}

// TestExactMuon: with Muon, too, the bits are the same under every layout, and after a resume. Hidden matrices have one part of
// state, all others two.
func TestExactMuon(t *testing.T) {
	for k, m := range muons {
		if testrun.RaceDetector && k > 0 {
			continue // races don't depend on the numbers
		}
		t.Run(m.name, func(t *testing.T) {
			_, end, few := testrun.Span()
			sets := slices.Concat(m.sets, []string{"optimizer.name=muon"}, few)
			want := filepath.Join(t.TempDir(), "out")
			testrun.Train(t, want, sets...)
			checkClipped(t, want)
			c := openAt(t, want, end)
			state, hidden := c.Optimizer().Names(), 0
			for _, name := range c.Model().Names() {
				info, _ := c.Model().Info(name)
				one, two := slices.Contains(state, "momentum."+name), slices.Contains(state, "m."+name) && slices.Contains(state, "v."+name)
				switch {
				case strings.Contains(strings.Join(m.sets, " "), "freeze") && (strings.Contains(name, "embed") || strings.Contains(name, "layers.0.")):
					if one || two {
						t.Errorf("%s is frozen and has state", name)
					}
				case len(info.Shape) == 2 && !strings.Contains(name, "embed") && !strings.Contains(name, "wte") && !strings.Contains(name, "wpe") &&
					!strings.Contains(name, "lm_head"):
					if hidden++; !one || two {
						t.Errorf("%s is a hidden matrix; it has a momentum: %v, moments: %v", name, one, two)
					}
				case one || !two:
					t.Errorf("%s is no hidden matrix; it has a momentum: %v, moments: %v", name, one, two)
				}
			}
			if hidden == 0 {
				t.Error("the run has no hidden matrix")
			}
			all := layouts
			if slices.Contains(m.sets, "model.mtp_layers=1") {
				all = mtpLayouts
			}
			for i, l := range all {
				if testrun.Long || (i+5*k)%9 == 4 || l.name == "1 thread" {
					sameUnder(t, want, l.name, slices.Concat(sets, withLetters(l.sets, "m")))
				}
			}
			if k < 2 {
				sameUnder(t, want, "ahead", slices.Concat(sets, muonAhead))
			}
		})
	}
}

// TestMuonReplicas: replicas have the same bits in every run.
func TestMuonReplicas(t *testing.T) {
	_, _, few := testrun.Span()
	sets := append(few, "optimizer.name=muon", "parallel.data=2")
	want := filepath.Join(t.TempDir(), "out")
	testrun.Train(t, want, sets...)
	sameUnder(t, want, "again", sets)
}

// TestMuonGrids: ranks that have parts of matrices have the same bits in every run, near those of one rank, and a run goes on under
// another grid.
func TestMuonGrids(t *testing.T) {
	if testrun.RaceDetector {
		t.Skip("races don't depend on the numbers")
	}
	steps := testrun.Sometimes(6, 50)
	for _, model := range [][]string{
		{"model.family=gpt2", "model.kv_heads=4"},
		{"model.family=llama", "model.kv_heads=2", "model.tie_embeddings=false", "optimizer.muon_scale=original"},
	} {
		sets := slices.Concat(model, []string{"optimizer.name=muon", "run.eval_every=2", "run.checkpoint_every=2",
			fmt.Sprint("run.steps=", steps)})
		further := append(slices.Clone(sets), fmt.Sprint("run.steps=", steps+2))
		want := filepath.Join(t.TempDir(), "want")
		testrun.Train(t, want, sets...)
		testrun.Train(t, want, further...)
		grids := [][]string{
			{"parallel.tensor=2"},
			{"parallel.tensor=4", "parallel.sequence=true", "parallel.data=2", "parallel.zero=1"},
			{"parallel.tensor=[2, 1]", "parallel.data=3", "pipeline.stages=2", "pipeline.schedule=1f1b"},
		}
		for i, grid := range grids {
			out, again := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "again")
			testrun.Train(t, out, slices.Concat(sets, grid)...)
			testrun.Train(t, again, slices.Concat(sets, grid)...)
			testrun.SameFigures(t, out, again)
			testrun.SameState(t, out, again, steps)
			testrun.Train(t, out, slices.Concat(further, grids[(i+1)%len(grids)])...)
			testrun.NearFigures(t, want, out, 1e-5)
			testrun.Train(t, again, further...) // on one rank
			testrun.NearFigures(t, want, again, 1e-5)
		}
	}
}

// TestOtherOptimizer: a run does not resume with another optimizer, whose state it lacks.
func TestOtherOptimizer(t *testing.T) {
	out := testrun.Trained(t)
	testrun.Refused(t, testrun.NewConfig(t, out, "optimizer.name=muon"), troupe.Options{}, troupe.ErrOutput,
		"--set optimizer.name=muon: optimizer.name", "adamw", "muon", out)
	out = testrun.Trained(t, "optimizer.name=muon")
	testrun.Refused(t, testrun.NewConfig(t, out), troupe.Options{}, troupe.ErrOutput, "optimizer.name", "muon", "adamw", out)
	testrun.Refused(t, testrun.NewConfig(t, out, "optimizer.name=muon", "optimizer.muon_scale=original"), troupe.Options{}, troupe.ErrOutput,
		"optimizer.muon_scale", "match_rms_adamw", "original", out)
}
