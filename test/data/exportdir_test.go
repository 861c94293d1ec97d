package data

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// exported exports what from has.
func exported(t *testing.T, from, dtype string, shardBytes int64) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "exported")
	if _, err := troupe.Export(context.Background(), troupe.ExportOptions{From: from, To: to, DType: dtype,
		ShardBytes: shardBytes}); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestExport: a run's model comes out as a directory of several files that gives the same loss,
// with the files of text as they came in; in a narrower type it is nearly the same.
func TestExport(t *testing.T) {
	for _, family := range []string{"gpt2", "llama"} {
		c := testrun.TinyModels[family]
		c.Vocab = 300
		dir := testrun.Directory(t, c, testrun.TensorsOf(t, c), map[string]string{"transformers_version": `"5.23.0"`})
		texts := map[string]string{"tokenizer.json": smallTokenizer(t), "tokenizer_config.json": `{"eos_token":  "the"}`,
			"chat_template.jinja": "{{ messages }}"}
		for name, text := range texts {
			testrun.Write(t, filepath.Join(dir, name), text)
		}
		val := testrun.Write(t, filepath.Join(t.TempDir(), "val.txt"), testrun.Read(t, "testdata/troupe.txt")[:500])
		cfg := testrun.FromConfig(t, dir, "model.context=8", "data.val="+val)
		testrun.Finish(t, testrun.Start(t, cfg))
		loss := func(from string) float64 {
			t.Helper()
			got, err := troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: from}, Data: []string{val},
				Format: "text", Context: 8})
			if err != nil {
				t.Fatal(err)
			}
			return got.Loss
		}
		want := loss(cfg.Run.Out)
		for dtype, apart := range map[string]float64{"float32": 0, "bfloat16": 1e-2, "float16": 1e-3} {
			to := exported(t, cfg.Run.Out, dtype, 4000)
			if got := loss(to); !(math.Abs(got-want) <= apart) {
				t.Errorf("%s as %s: the loss is %g, of the run %g", family, dtype, got, want)
			}
			for name, text := range texts {
				if got := testrun.Read(t, filepath.Join(to, name)); got != text {
					t.Errorf("%s is %.100q", name, got)
				}
			}
			var model map[string]any
			if err := json.Unmarshal([]byte(testrun.Read(t, filepath.Join(to, "config.json"))), &model); err != nil ||
				model["torch_dtype"] != dtype || model["transformers_version"] != "5.23.0" {
				t.Errorf("config.json has %v, %v", model, err)
			}
			if shards, err := filepath.Glob(filepath.Join(to, "model-0000*-of-0000*.safetensors")); err != nil || len(shards) < 2 {
				t.Errorf("the shards are %v, %v", shards, err)
			}
			again := exported(t, to, "float32", 0) // from shards to one file
			if got := loss(again); !(math.Abs(got-want) <= apart) {
				t.Errorf("%s: exported again, the loss is %g", family, got)
			}
		}
		to := exported(t, dir, "float32", 0)
		before := testrun.Tree(t, to)
		_, err := troupe.Export(context.Background(), troupe.ExportOptions{From: cfg.Run.Out, To: to})
		if !errors.Is(err, fs.ErrExist) || testrun.Tree(t, to) != before {
			t.Errorf("over what is there: %v", err)
		}
	}
	if _, err := troupe.Export(context.Background(), troupe.ExportOptions{From: "testdata",
		To: filepath.Join(t.TempDir(), "x")}); !errors.Is(err, checkpoint.ErrNotCheckpoint) {
		t.Errorf("no model: %v", err)
	}
}

// TestExportRange: a number that float16 has no place for is an error that names it, and
// leaves nothing.
func TestExportRange(t *testing.T) {
	dir := withValue(t, 1e6)
	to := filepath.Join(t.TempDir(), "to", "x")
	_, err := troupe.Export(context.Background(), troupe.ExportOptions{From: dir, To: to, DType: "float16"})
	if err == nil || !strings.Contains(err.Error(), "model.norm.weight") || !strings.Contains(err.Error(), "65504") {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(to)); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// withValue is a directory whose last norm has a weight of that value.
func withValue(t *testing.T, value float32) string {
	t.Helper()
	c := testrun.TinyModels["llama"]
	tensors := testrun.TensorsOf(t, c)
	for i, one := range tensors {
		if one.Name == "model.norm.weight" {
			values := make([]float32, c.Hidden)
			values[3] = value
			tensors[i] = safetensors.F32(one.Name, one.Shape, values)
		}
	}
	return testrun.Directory(t, c, tensors, nil)
}

// TestNaNWeights: a directory's weights that are no numbers are refused by file and tensor.
func TestNaNWeights(t *testing.T) {
	for _, value := range []float64{math.NaN(), math.Inf(1)} {
		dir := withValue(t, float32(value))
		want := []string{filepath.Join(dir, "model.safetensors"), `"model.norm.weight"`, "element 3"}
		_, err := troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: dir},
			Data: []string{"testdata/troupe.txt"}, Format: "text"})
		for _, text := range want {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("error %v, want %q in it", err, text)
			}
		}
		run, err := troupe.Start(context.Background(), testrun.FromConfig(t, dir), troupe.Options{})
		if err == nil {
			for range run.Events() {
			}
			_, err = run.Wait()
		}
		for _, text := range want {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("a run: error %v, want %q in it", err, text)
			}
		}
	}
}

// TestBadShards: shards that are truncated or crossed, and an index that lies.
func TestBadShards(t *testing.T) {
	c := testrun.TinyModels["llama"]
	good := exported(t, testrun.Directory(t, c, testrun.TensorsOf(t, c), nil), "float32", 4000)
	shards, err := filepath.Glob(filepath.Join(good, "model-*.safetensors"))
	if err != nil || len(shards) < 2 {
		t.Fatal(shards, err)
	}
	first, second := filepath.Base(shards[0]), filepath.Base(shards[1])
	const index = "model.safetensors.index.json"
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, dir string)
		want   []string
	}{
		{"truncated", func(t *testing.T, dir string) {
			testrun.Write(t, filepath.Join(dir, second), testrun.Read(t, filepath.Join(dir, second))[:2000])
		}, []string{second, "truncated"}},
		{"gone", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, second)); err != nil {
				t.Fatal(err)
			}
		}, []string{second}},
		{"crossed", func(t *testing.T, dir string) {
			a, b := testrun.Read(t, filepath.Join(dir, first)), testrun.Read(t, filepath.Join(dir, second))
			testrun.Write(t, filepath.Join(dir, first), b)
			testrun.Write(t, filepath.Join(dir, second), a)
		}, []string{"has no tensor", index}},
		{"twice", func(t *testing.T, dir string) {
			testrun.Write(t, filepath.Join(dir, second), testrun.Read(t, filepath.Join(dir, first)))
		}, []string{second, "but another shard has it, too"}},
		{"the index names another shard", func(t *testing.T, dir string) {
			text := testrun.Read(t, filepath.Join(dir, index))
			testrun.Write(t, filepath.Join(dir, index), strings.Replace(text, second, first, 1))
		}, []string{first, "has no tensor", index}},
		{"the index leads out", func(t *testing.T, dir string) {
			text := testrun.Read(t, filepath.Join(dir, index))
			testrun.Write(t, filepath.Join(dir, index), strings.ReplaceAll(text, second, "../"+second))
		}, []string{index, "../" + second}},
		{"no index", func(t *testing.T, dir string) { testrun.Write(t, filepath.Join(dir, index), "{}") }, []string{index, "weight_map"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := testrun.CopyTree(t, good)
			tt.change(t, dir)
			testrun.Refused(t, testrun.FromConfig(t, dir), troupe.Options{}, nil, append([]string{"model.from"}, tt.want...)...)
		})
	}
}
