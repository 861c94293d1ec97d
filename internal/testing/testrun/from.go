package testrun

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/safetensors"
)

// Foreign makes of a run's last checkpoint what other programs publish: a folder
// of config.json and model.safetensors, here with other names for the tensors ("": left out)
// and another config.json.
func Foreign(t *testing.T, out string, rename func(string) string, configJSON func(string) string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	ckpt, err := checkpoint.Open(StepDir(out, 6))
	if err != nil {
		t.Fatal(err)
	}
	var tensors []safetensors.Tensor
	for _, name := range ckpt.Model().Names() {
		info, values := Floats(t, ckpt.Model(), name)
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
	Write(t, filepath.Join(dir, "model.safetensors"), file.String())
	Write(t, filepath.Join(dir, "config.json"), configJSON(Read(t, filepath.Join(StepDir(out, 6), "config.json"))))
	return dir
}

// Same is a rename or a change for Foreign that leaves all as it is.
func Same(s string) string { return s }

// WithoutPrefix is a rename for Foreign, of GPT-2's tensors.
func WithoutPrefix(name string) string { return strings.TrimPrefix(name, "transformer.") }

// Replacing changes a text, which must hold what is replaced.
func Replacing(t *testing.T, old, new string) func(string) string {
	return func(text string) string {
		t.Helper()
		if !strings.Contains(text, old) {
			t.Fatalf("no %q in\n%s", old, text)
		}
		return strings.Replace(text, old, new, 1)
	}
}
