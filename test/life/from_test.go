package life

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/stages"
)

// TestFrom: a new run that starts from another's weights has, before its first
// step, the validation loss that the other ended with; and it can be resumed.
func TestFrom(t *testing.T) {
	for name, family := range testrun.Families {
		t.Run(name, func(t *testing.T) {
			base := testrun.Trained(t, family...)
			end := testrun.Records(t, base)[6].ValLoss
			for kind, from := range map[string]string{
				"a run":           base,
				"a checkpoint":    testrun.StepDir(base, 6),
				"a pointer":       filepath.Join(base, "checkpoints", "last"),
				"other people's":  testrun.Foreign(t, base, testrun.Same, testrun.Same),
				"without prefix.": testrun.Foreign(t, base, testrun.WithoutPrefix, testrun.Same),
			} {
				out := filepath.Join(t.TempDir(), "out")
				sets := slices.Concat(family, []string{"model.from=" + from, "pipeline.stages=2", "data.tokenizer=bytes"})
				result, _ := testrun.Train(t, out, sets...)
				if first := result.FirstValLoss; math.Float64bits(first) != math.Float64bits(*end) {
					t.Errorf("%s: it begins at %g, the other ended at %g", kind, first, *end)
				}
				if result, _ = testrun.Train(t, out, append(sets, "run.steps=7")...); result.Step != 7 {
					t.Errorf("%s: resumed, it ended at step %d", kind, result.Step)
				}
			}
		})
	}
}

// TestFromShape: the shape is the checkpoint's where the configuration says
// nothing, also what no key is for.
func TestFromShape(t *testing.T) {
	base := testrun.Trained(t, testrun.Families["llama"]...)
	from := testrun.Foreign(t, base, testrun.Same, testrun.Replacing(t, `"rms_norm_eps": 0.00001`, `"rms_norm_eps": 0.001`))
	sets := append(slices.Clone(testrun.Families["llama"]), "model.from="+from, "data.tokenizer=bytes")
	out := testrun.Trained(t, sets...)
	if text := testrun.Read(t, filepath.Join(testrun.StepDir(out, 6), "config.json")); !strings.Contains(text, `"rms_norm_eps": 0.001`) {
		t.Errorf("the epsilon is lost:\n%s", text)
	}
	testrun.Train(t, out, append(sets, "run.steps=7")...)
	var model struct {
		Eps float64 `json:"rms_norm_eps"`
	}
	if err := json.Unmarshal([]byte(testrun.Read(t, filepath.Join(testrun.StepDir(out, 7), "config.json"))), &model); err != nil ||
		model.Eps != 0.001 {
		t.Errorf("resumed, it trains with an epsilon of %g, %v", model.Eps, err)
	}
}

// TestFromTokenizer: weights go with the tokenizer that they were trained with.
func TestFromTokenizer(t *testing.T) {
	base := testrun.Trained(t, "data.tokenizer=chars")
	from := "model.from=" + base
	out := filepath.Join(t.TempDir(), "out")
	run := testrun.Start(t, testrun.NewConfig(t, out, from))
	testrun.Finish(t, run)
	if vocab := run.Info().Vocab; vocab >= 100 {
		t.Errorf("a vocabulary of %d is not that of the characters", vocab)
	}
	if testrun.Read(t, filepath.Join(testrun.StepDir(out, 6), "tokenizer.json")) != testrun.Read(t,
		filepath.Join(testrun.StepDir(base, 6), "tokenizer.json")) {
		t.Error("the tokenizer is another one")
	}
	testrun.Train(t, out, from, "run.steps=7")

	testrun.Refused(t, testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), from, "data.tokenizer=bytes"), troupe.Options{}, nil,
		"data.tokenizer", `"bytes"`, `"chars"`)
	greek := testrun.Write(t, filepath.Join(t.TempDir(), "greek.txt"), strings.Repeat("χορός ", 100))
	testrun.Refused(t, testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), from, "data.train="+greek), troupe.Options{}, nil, greek,
		"byte 0", "χ")

	unknown := testrun.Foreign(t, testrun.Trained(t), testrun.Same, testrun.Same)
	testrun.Write(t, filepath.Join(unknown, "tokenizer.json"), `{"model": {"type": "Strange"}}`)
	testrun.Refused(t, testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), "model.from="+unknown), troupe.Options{}, nil, "model.from",
		unknown, "uint16")
}

// TestFromUnusable: a checkpoint that the configuration doesn't fit, or that is
// none, is refused before anything is written.
func TestFromUnusable(t *testing.T) {
	base := testrun.Trained(t)
	for _, tt := range []struct {
		name, from string
		sets, want []string
		is         error
	}{
		{"nothing there", "nowhere", nil, []string{"model.from", "nowhere"}, os.ErrNotExist},
		{"no checkpoint", "testdata", nil, []string{"model.from", "testdata"}, checkpoint.ErrNotCheckpoint},
		{"another family", base, []string{"model.family=llama"}, []string{"model.family", "llama", "gpt2"}, nil},
		{"another width", base, []string{"model.hidden=64"}, []string{"model.hidden", "64", "16"}, nil},
		{"another architecture", testrun.Foreign(t, base, testrun.Same, testrun.Replacing(t, `"model_type": "gpt2"`, `"model_type": "bert"`)),
			nil, []string{"model.from", "bert"}, stages.ErrModel},
		{"no config.json", testrun.Foreign(t, base, testrun.Same, func(string) string { return "" }), nil, []string{"model.from", "config.json"},
			stages.ErrModel},
		{"a tensor's name", testrun.Foreign(t, base, testrun.Replacing(t, "transformer", "model"), testrun.Same), nil,
			[]string{`"transformer.wte.weight"`}, nil},
		{"a tensor's shape", testrun.Foreign(t, base, testrun.Same, testrun.Replacing(t, `"n_positions": 16`, `"n_positions": 17`)),
			[]string{"model.context=17"}, []string{"transformer.wpe.weight", "[16 16]", "[17 16]"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), append(tt.sets, "model.from="+tt.from, "data.tokenizer=bytes")...)
			testrun.Refused(t, cfg, troupe.Options{}, tt.is, tt.want...)
			if err := troupe.Check(cfg); err == nil {
				t.Error("Check has nothing against it")
			}
		})
	}
	t.Run("damaged", func(t *testing.T) {
		from := testrun.CopyTree(t, base)
		testrun.Write(t, filepath.Join(testrun.StepDir(from, 6), "model.safetensors"), "")
		testrun.Refused(t, testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), "model.from="+from), troupe.Options{}, checkpoint.ErrDamaged,
			"model.from", "0 of ")
	})
}
