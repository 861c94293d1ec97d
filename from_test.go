package troupe_test

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
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/stages"
)

// foreign makes of a run's last checkpoint what other programs publish: a folder
// of config.json and model.safetensors, here with other names for the tensors ("": left out)
// and another config.json.
func foreign(t *testing.T, out string, rename func(string) string, configJSON func(string) string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	ckpt, err := checkpoint.Open(stepDir(out, 6))
	if err != nil {
		t.Fatal(err)
	}
	var tensors []safetensors.Tensor
	for _, name := range ckpt.Model().Names() {
		info, values := floats(t, ckpt.Model(), name)
		if name = rename(name); name != "" {
			tensors = append(tensors, safetensors.F32(name, info.Shape, values))
		}
	}
	if err := ckpt.Close(); err != nil {
		t.Fatal(err)
	}
	var file strings.Builder
	if err := safetensors.Write(&file, nil, tensors); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "model.safetensors"), file.String())
	write(t, filepath.Join(dir, "config.json"), configJSON(read(t, filepath.Join(stepDir(out, 6), "config.json"))))
	return dir
}

func same(s string) string { return s }

func withoutPrefix(name string) string { return strings.TrimPrefix(name, "transformer.") }

// replacing changes a text, which must hold what is replaced.
func replacing(t *testing.T, old, new string) func(string) string {
	return func(text string) string {
		t.Helper()
		if !strings.Contains(text, old) {
			t.Fatalf("no %q in\n%s", old, text)
		}
		return strings.Replace(text, old, new, 1)
	}
}

// TestFrom: a new run that starts from another's weights has, before its first
// step, the validation loss that the other ended with; and it can be resumed.
func TestFrom(t *testing.T) {
	for name, family := range families {
		t.Run(name, func(t *testing.T) {
			base := trained(t, family...)
			end := records(t, base)[6].ValLoss
			for kind, from := range map[string]string{
				"a run":           base,
				"a checkpoint":    stepDir(base, 6),
				"a pointer":       filepath.Join(base, "checkpoints", "last"),
				"other people's":  foreign(t, base, same, same),
				"without prefix.": foreign(t, base, withoutPrefix, same),
			} {
				out := filepath.Join(t.TempDir(), "out")
				sets := slices.Concat(family, []string{"model.from=" + from, "pipeline.stages=2", "data.tokenizer=bytes"})
				result, _ := train(t, out, sets...)
				if first := result.FirstValLoss; math.Float64bits(first) != math.Float64bits(*end) {
					t.Errorf("%s: it begins at %g, the other ended at %g", kind, first, *end)
				}
				if result, _ = train(t, out, append(sets, "run.steps=7")...); result.Step != 7 {
					t.Errorf("%s: resumed, it ended at step %d", kind, result.Step)
				}
			}
		})
	}
}

// TestFromShape: the shape is the checkpoint's where the configuration says
// nothing, also what no key is for.
func TestFromShape(t *testing.T) {
	base := trained(t, families["llama"]...)
	from := foreign(t, base, same, replacing(t, `"rms_norm_eps": 0.00001`, `"rms_norm_eps": 0.001`))
	sets := append(slices.Clone(families["llama"]), "model.from="+from, "data.tokenizer=bytes")
	out := trained(t, sets...)
	if text := read(t, filepath.Join(stepDir(out, 6), "config.json")); !strings.Contains(text, `"rms_norm_eps": 0.001`) {
		t.Errorf("the epsilon is lost:\n%s", text)
	}
	train(t, out, append(sets, "run.steps=7")...)
	var model struct {
		Eps float64 `json:"rms_norm_eps"`
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(stepDir(out, 7), "config.json"))), &model); err != nil || model.Eps != 0.001 {
		t.Errorf("resumed, it trains with an epsilon of %g, %v", model.Eps, err)
	}
}

// TestFromTokenizer: weights go with the tokenizer that they were trained with.
func TestFromTokenizer(t *testing.T) {
	base := trained(t, "data.tokenizer=chars")
	from := "model.from=" + base
	out := filepath.Join(t.TempDir(), "out")
	run := start(t, newConfig(t, out, from))
	finish(t, run)
	if vocab := run.Info().Vocab; vocab >= 100 {
		t.Errorf("a vocabulary of %d is not that of the characters", vocab)
	}
	if read(t, filepath.Join(stepDir(out, 6), "tokenizer.json")) != read(t, filepath.Join(stepDir(base, 6), "tokenizer.json")) {
		t.Error("the tokenizer is another one")
	}
	train(t, out, from, "run.steps=7")

	refused(t, newConfig(t, filepath.Join(t.TempDir(), "out"), from, "data.tokenizer=bytes"), troupe.Options{}, nil, "data.tokenizer", `"bytes"`, `"chars"`)
	greek := write(t, filepath.Join(t.TempDir(), "greek.txt"), strings.Repeat("χορός ", 100))
	refused(t, newConfig(t, filepath.Join(t.TempDir(), "out"), from, "data.train="+greek), troupe.Options{}, nil, greek, "byte 0", "χ")

	unknown := foreign(t, trained(t), same, same)
	write(t, filepath.Join(unknown, "tokenizer.json"), `{"model": {"type": "WordPiece"}}`)
	refused(t, newConfig(t, filepath.Join(t.TempDir(), "out"), "model.from="+unknown), troupe.Options{}, nil, "model.from", unknown, "uint16")
}

// TestFromUnusable: a checkpoint that the configuration doesn't fit, or that is
// none, is refused before anything is written.
func TestFromUnusable(t *testing.T) {
	base := trained(t)
	for _, tt := range []struct {
		name, from string
		sets, want []string
		is         error
	}{
		{"nothing there", "nowhere", nil, []string{"model.from", "nowhere"}, os.ErrNotExist},
		{"no checkpoint", "testdata", nil, []string{"model.from", "testdata"}, checkpoint.ErrNotCheckpoint},
		{"another family", base, []string{"model.family=llama"}, []string{"model.family", "llama", "gpt2"}, nil},
		{"another width", base, []string{"model.hidden=64"}, []string{"model.hidden", "64", "16"}, nil},
		{"another architecture", foreign(t, base, same, replacing(t, `"model_type": "gpt2"`, `"model_type": "bert"`)), nil, []string{"model.from", "bert"}, stages.ErrModel},
		{"no config.json", foreign(t, base, same, func(string) string { return "" }), nil, []string{"model.from", "config.json"}, stages.ErrModel},
		{"a tensor's name", foreign(t, base, replacing(t, "transformer", "model"), same), nil, []string{`"transformer.wte.weight"`}, nil},
		{"a tensor's shape", foreign(t, base, same, replacing(t, `"n_positions": 16`, `"n_positions": 17`)), []string{"model.context=17"}, []string{"transformer.wpe.weight", "[16 16]", "[17 16]"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := newConfig(t, filepath.Join(t.TempDir(), "out"), append(tt.sets, "model.from="+tt.from, "data.tokenizer=bytes")...)
			refused(t, cfg, troupe.Options{}, tt.is, tt.want...)
			if err := troupe.Check(cfg); err == nil {
				t.Error("Check has nothing against it")
			}
		})
	}
	t.Run("damaged", func(t *testing.T) {
		from := copyTree(t, base)
		write(t, filepath.Join(stepDir(from, 6), "model.safetensors"), "")
		refused(t, newConfig(t, filepath.Join(t.TempDir(), "out"), "model.from="+from), troupe.Options{}, checkpoint.ErrDamaged, "model.from", "0 of ")
	})
}
