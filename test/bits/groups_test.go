package bits

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// groups are runs with groups of weights: with a tied embedding, and with AdamW for a hidden matrix of Muon.
var groups = []struct {
	name string
	sets []string
	// Names with a momentum in the state, and without.
	momentum, moments string
}{
	{"gpt2, tied", []string{"model.family=gpt2", `optimizer.group=[{match=["transformer.wte.*", "*.ln_*.weight"], lr_scale=0.25},
		{match=["*.h.1.mlp.*"], name="sgd", weight_decay=0.01}]`, "optimizer.state_dtype=bfloat16"},
		"transformer.h.1.mlp.c_fc.weight", "transformer.wte.weight"},
	{"phi3, muon", []string{"model.family=phi3", "model.kv_heads=2", "optimizer.name=muon",
		`optimizer.group=[{match=["*.qkv_proj.weight"], name="adamw", beta1=0.8}, {match=["*norm*"], lr_scale=3, beta2=0.9}]`},
		"model.layers.1.mlp.down_proj.weight", "model.layers.1.self_attn.qkv_proj.weight"},
}

// TestExactGroups: with groups of weights, too, the bits are the same under every layout, and after a resume. They are not those of a run
// without groups.
func TestExactGroups(t *testing.T) {
	for k, g := range groups {
		if testrun.RaceDetector && k > 0 {
			continue // races don't depend on the numbers
		}
		t.Run(g.name, func(t *testing.T) {
			_, end, few := testrun.Span()
			sets := slices.Concat(g.sets, few)
			want, plain := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "plain")
			testrun.Train(t, want, sets...)
			testrun.Train(t, plain, append(sets, "optimizer.group=[]")...)
			if lastLoss(t, want) == lastLoss(t, plain) {
				t.Error("groups change nothing")
			}
			state := openAt(t, want, end).Optimizer().Names()
			for name, part := range map[string]string{g.momentum: "momentum.", g.moments: "v."} {
				if !slices.Contains(state, part+name) {
					t.Errorf("the state has no %s%s", part, name)
				}
			}
			for i, l := range layouts {
				if testrun.Long || (i+5*k)%9 == 4 {
					sameUnder(t, want, l.name, slices.Concat(sets, l.sets))
				}
			}
			if k == 0 {
				sameUnder(t, want, "ahead", slices.Concat(sets, muonAhead))
			}
		})
	}
}

// TestGroupsRefused: a pattern that matches nothing, or a weight of another group, and a resume with other groups, are refused.
func TestGroupsRefused(t *testing.T) {
	out := testrun.Trained(t)
	for name, c := range map[string]struct {
		group string
		want  []string
	}{
		"no weight": {`{match=["*.mpl.*"]}`, []string{"optimizer.group[1].match", `"*.mpl.*" matches no weight`, "wte.weight"}},
		"two groups": {`{match=["*.mlp.*"]}, {match=["*.h.0.*"]}`,
			[]string{"optimizer.group[2].match", ".h.0.mlp.", "[[optimizer.group]] 1"}},
		"only biases":   {`{match=["*.bias"], name="muon"}`, []string{"optimizer.group[1].name", "nothing to train"}},
		"another group": {`{match=["*.mlp.*"], lr_scale=0.5}`, []string{"optimizer.group[1].lr_scale", "0.5", out}},
	} {
		t.Run(name, func(t *testing.T) {
			to := out
			if name != "another group" {
				to = filepath.Join(t.TempDir(), "out")
			}
			testrun.Refused(t, testrun.NewConfig(t, to, "optimizer.group=["+c.group+"]"), troupe.Options{}, nil, c.want...)
		})
	}
	frozen := testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), `model.freeze=["0"]`, `optimizer.group=[{match=["*.h.0.*"]}]`)
	testrun.Refused(t, frozen, troupe.Options{}, nil, "optimizer.group[1].match", "matches only weights that are not trained", ".h.0.")
}

// TestGroupPatterns: a pattern that is none, and a group without patterns, are errors of the configuration.
func TestGroupPatterns(t *testing.T) {
	for group, want := range map[string]string{`{match=["[a"]}`: "is not a pattern", `{lr_scale=0.5}`: "no patterns are given",
		`{match=["*"], lr_scale=-1}`: "too small", `{match=["*"], name="lion"}`: "unknown value"} {
		_, err := config.Parse("test.toml", []byte("data.train = ['a.txt']"), []string{"optimizer.group=[" + group + "]"}, nil)
		if err == nil || !strings.Contains(err.Error(), "optimizer.group[1].") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", group, err, want)
		}
	}
}
