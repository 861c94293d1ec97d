package infer_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/infer"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestModelGivesBack: an evaluation leaves nothing on the model's device, nor does the
// model when it is closed after generating.
func TestModelGivesBack(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	cfg, err := config.Parse("tiny.toml", []byte(`
run = {steps = 1, eval_batches = 1}
model = {layers = 1, hidden = 8, heads = 1, context = 8}
data = {train = ["../testdata/troupe.txt"]}
batch = {sequences = 1}
`), []string{"run.out=" + out}, nil)
	if err != nil {
		t.Fatal(err)
	}
	run, err := troupe.Start(context.Background(), cfg, troupe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	m, err := infer.Open(infer.ModelOptions{From: out}, true)
	if err != nil {
		t.Fatal(err)
	}
	left := func(after string) {
		t.Helper()
		if s := m.Device.Memory(); s.InUse != 0 || s.Pooled != 0 || s == (tensorops.MemoryStats{}) {
			t.Errorf("after %s: %+v", after, s)
		}
	}
	if _, err := infer.EvaluateText(context.Background(), m, infer.EvalOptions{}); err != nil {
		t.Error(err)
	}
	left("evaluating")
	if err := infer.GeneratorOf(m).Generate(context.Background(), infer.TextOptions{Tokens: 20},
		func([]byte) error { return nil }); err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	left("generating")
}
