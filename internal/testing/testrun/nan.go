package testrun

import (
	"context"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/safetensors"
)

// Doctor changes the values of a tensor in a checkpoint and keeps the checkpoint intact.
func Doctor(t *testing.T, out string, step int, tensor string, change func(values []float32)) {
	t.Helper()
	Replace(t, out, step, func(name string, values []float32) {
		if name == tensor {
			change(values)
		}
	}, func(map[string][]byte) {})
}

// Rewrite changes the other files of a checkpoint and keeps the checkpoint intact.
func Rewrite(t *testing.T, out string, step int, change func(files map[string][]byte)) {
	t.Helper()
	Replace(t, out, step, func(string, []float32) {}, change)
}

// Replace rewrites a run's checkpoint of a step with other tensors or files.
func Replace(t *testing.T, out string, step int, changeTensor func(name string, values []float32),
	changeFiles func(files map[string][]byte)) {
	t.Helper()
	ckpt, err := checkpoint.Open(StepDir(out, step))
	if err != nil {
		t.Fatal(err)
	}
	load := func(from *checkpoint.Tensors) (all []safetensors.Tensor) {
		for _, name := range from.Names() {
			info, values := Floats(t, from, name)
			changeTensor(name, values)
			all = append(all, safetensors.F32(name, info.Shape, values))
		}
		return all
	}
	c := checkpoint.Content{Step: step, Model: load(ckpt.Model()), Optimizer: load(ckpt.Optimizer()), Files: map[string][]byte{}}
	for _, f := range ckpt.Manifest.Files {
		if strings.HasSuffix(f.Name, ".safetensors") {
			continue
		}
		if c.Files[f.Name], err = ckpt.File(f.Name); err != nil {
			t.Fatal(err)
		}
	}
	if err := ckpt.Close(); err != nil {
		t.Fatal(err)
	}
	changeFiles(c.Files)
	if _, err := OpenStore(t, out).Save(context.Background(), c); err != nil {
		t.Fatal(err)
	}
}
