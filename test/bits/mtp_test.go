package bits

import (
	"context"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/stages"
)

// mtpFamilies predict one and two further tokens.
var mtpFamilies = map[string][]string{
	"gpt2, 2 layers, tied":     {"model.family=gpt2", "model.mtp_layers=2"},
	"llama, 1 layer, not tied": {"model.family=llama", "model.kv_heads=2", "model.mtp_layers=1", "model.tie_embeddings=false"},
	"llama, 1 layer, bfloat16": {"model.family=llama", "model.kv_heads=2", "model.mtp_layers=1", "model.tie_embeddings=false",
		"device.dtype=bfloat16"},
}

// mtpLayouts spread them; M stands for all layers of multi-token prediction.
var mtpLayouts = []struct {
	name string
	sets []string
}{
	{"1 thread, recompute full", []string{"device.threads=1", "pipeline.recompute=full"}},
	{"2 stages 1f1b", []string{"pipeline.stages=2"}},
	{"with the head", []string{"pipeline.stages=3", "pipeline.layout=Et|ttt|ML"}},
	{"interleaved", []string{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.layout=Et|t|tt|ML", "pipeline.recompute=full"}},
	{"a stage of their own", []string{"pipeline.stages=4", "pipeline.layout=Et|t*3|M|L", "pipeline.schedule=zb-h1"}},
	{"interleaved, the head on another rank", []string{"pipeline.stages=3", "pipeline.chunks=2", "pipeline.microbatch_group_size=4",
		"pipeline.layout=Et|t|t||tM|L"}},
	{"an empty stage before the head", []string{"pipeline.stages=4", "pipeline.layout=Et*3|tM||L"}},
	{"zb-v: the head with the embedding", []string{"pipeline.stages=2", "pipeline.schedule=zb-v"}},
	{"u-shape: the head with the embedding", []string{"pipeline.stages=3", "pipeline.schedule=u-shape"}},
	{"dualpipev", []string{"pipeline.stages=2", "pipeline.schedule=dualpipev", "pipeline.layout=Et|tt|tM|L"}},
	{"auto", []string{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.schedule=auto"}},
}

// withLetters returns the sets of one of mtpLayouts with the letters of the model's layers of multi-token prediction.
func withLetters(sets []string, letters string) []string {
	own := slices.Clone(sets)
	for i, s := range own {
		if strings.HasPrefix(s, "pipeline.layout=") {
			own[i] = strings.Replace(s, "M", letters, 1)
		}
	}
	return own
}

// TestExactMTP is TestExact for models that predict further tokens.
func TestExactMTP(t *testing.T) {
	for name, family := range mtpFamilies {
		t.Run(name, func(t *testing.T) {
			_, _, few := testrun.Span()
			family = slices.Concat(family, few)
			want := filepath.Join(t.TempDir(), "out")
			testrun.Train(t, want, family...)
			checkClipped(t, want)
			for _, r := range testrun.Records(t, want) {
				if has := r.MTPLoss != nil; has != (r.Loss != nil) || has && !(*r.MTPLoss > 0) {
					t.Errorf("step %d: the loss of multi-token prediction is %v", r.Step, r.MTPLoss)
				}
			}
			ms := "m"
			if slices.Contains(family, "model.mtp_layers=2") {
				ms = "mm"
			}
			for i, l := range mtpLayouts {
				if testrun.RaceDetector && i%6 != 1 || !testrun.RaceDetector && !testrun.Long && (i+len(name))%2 == 0 {
					continue // make check-bits runs all
				}
				sets := slices.Concat(family, withLetters(l.sets, ms))
				sameUnder(t, want, l.name, sets)
			}
		})
	}
}

// TestPublishedLayout runs the layout that is the language's example: 61 layers and one
// of multi-token prediction on 16 ranks. It computes what one rank does.
func TestPublishedLayout(t *testing.T) {
	if testing.Short() || testrun.RaceDetector {
		t.Skip("61 layers")
	}
	sets := []string{"model.family=llama", "model.layers=61", "model.mtp_layers=1", "model.tie_embeddings=false", "model.context=8",
		"run.steps=1", "batch.sequences=16", "optimizer.warmup_steps=0"}
	want, got := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "out")
	testrun.Train(t, want, sets...)
	testrun.Train(t, got, append(sets, "pipeline.stages=16", "pipeline.chunks=2", "pipeline.layout=Et*3|(tt|)*29,m|L")...)
	testrun.SameFigures(t, want, got)
	testrun.SameState(t, want, got, 1)
}

// TestMTPCheckpoint: the layers are stored under DeepSeek-V3's names, numbered on from
// the decoder layers; who goes on from the checkpoint has them, and who evaluates or
// writes does as if they weren't there.
func TestMTPCheckpoint(t *testing.T) {
	llama := mtpFamilies["llama, 1 layer, not tied"]
	base := testrun.Trained(t, llama...)
	ckpt, err := checkpoint.Open(testrun.StepDir(base, 6))
	if err != nil {
		t.Fatal(err)
	}
	for name, shape := range map[string][]int{
		"model.layers.4.enorm.weight": {16}, "model.layers.4.hnorm.weight": {16}, "model.layers.4.eh_proj.weight": {16, 32},
		"model.layers.4.self_attn.q_proj.weight": {16, 16}, "model.layers.4.mlp.down_proj.weight": {16, 64},
	} {
		if info, ok := ckpt.Model().Info(name); !ok || !slices.Equal(info.Shape, shape) {
			t.Errorf("%s has shape %v, want %v", name, info.Shape, shape)
		}
	}
	var model struct {
		Layers  int `json:"num_hidden_layers"`
		Further int `json:"num_nextn_predict_layers"`
	}
	text, err := ckpt.File("config.json")
	if err == nil {
		err = json.Unmarshal(text, &model)
	}
	if err != nil || model.Layers != 4 || model.Further != 1 {
		t.Errorf("config.json has %+v, %v", model, err)
	}
	if err := ckpt.Close(); err != nil {
		t.Fatal(err)
	}

	end := *testrun.Records(t, base)[6].ValLoss
	result, _ := testrun.Train(t, filepath.Join(t.TempDir(), "out"), "model.family=llama", "model.tie_embeddings=false", "model.kv_heads=2",
		"model.from="+base, "pipeline.stages=2")
	if math.Float64bits(result.FirstValLoss) != math.Float64bits(end) {
		t.Errorf("a run from it begins at %g, it ended at %g", result.FirstValLoss, end)
	}

	// The same weights without the layers are other people's model.
	withoutLayer := func(name string) string {
		if strings.HasPrefix(name, "model.layers.4.") {
			return ""
		}
		return name
	}
	bare := testrun.Foreign(t, base, withoutLayer, testrun.Replacing(t, `"num_nextn_predict_layers": 1,`, ""))
	whole := testrun.Foreign(t, base, testrun.Same, testrun.Same)
	loss := func(from string) float64 {
		r, err := troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: from},
			Data: []string{"testdata/troupe.txt"}, Format: "text"})
		if err != nil {
			t.Fatal(err)
		}
		return r.Loss
	}
	for _, dir := range []string{bare, whole} {
		testrun.Write(t, filepath.Join(dir, "tokenizer.json"), testrun.Read(t, filepath.Join(testrun.StepDir(base, 6), "tokenizer.json")))
	}
	if a, b := loss(bare), loss(whole); math.Float64bits(a) != math.Float64bits(b) {
		t.Errorf("evaluated: %v with the layers, %v without", b, a)
	}
	o := troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: bare}, TextOptions: troupe.TextOptions{Prompt: "actor", Tokens: 30}}
	a, _ := testrun.Generate(t, o)
	o.From = whole
	if b, _ := testrun.Generate(t, o); a != b {
		t.Errorf("written: %q with the layers, %q without", b, a)
	}
}

// TestMTPUnusable: what doesn't fit is refused before anything is written.
func TestMTPUnusable(t *testing.T) {
	for _, tt := range []struct {
		name       string
		sets, want []string
	}{
		{"no m", []string{"model.mtp_layers=1", "pipeline.stages=2", "pipeline.layout=Ett|ttL"}, []string{"0 m", "1 multi-token"}},
		{"m on rank 0", []string{"model.mtp_layers=1", "pipeline.stages=2", "pipeline.chunks=2", "pipeline.layout=Ett|tt|m|L"},
			[]string{"rank 0 cannot hold m"}},
		{"m of another model", []string{"pipeline.stages=2", "pipeline.layout=Ett|ttmL"}, []string{"1 m", "0 multi-token"}},
		{"other layers than the checkpoint's", []string{"model.mtp_layers=1", "model.from=" + testrun.Trained(t)},
			[]string{"model.mtp_layers", "has 0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testrun.Refused(t, testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), tt.sets...), troupe.Options{}, nil, tt.want...)
		})
	}
	c := stages.Config{Family: stages.GPT2, Layers: 1, Hidden: 4, Heads: 1, KVHeads: 1, FFN: 4, Context: 2, Vocab: 3, MTPLayers: 2}
	if err := c.Validate(); err == nil {
		t.Error("two further tokens in a context of two were accepted")
	}
}
