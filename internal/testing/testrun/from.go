package testrun

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/safetensors"
)

// Foreign converts a run's last checkpoint to the folder that other programs publish, with config.json and
// model.safetensors. rename changes the names of tensors ("": leave out), and configJSON the text of config.json.
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

// Same is a rename or a change for Foreign that changes nothing.
func Same(s string) string { return s }

// WithoutPrefix is a rename for Foreign of GPT-2's tensors.
func WithoutPrefix(name string) string { return strings.TrimPrefix(name, "transformer.") }

// Replacing is a change for Foreign that replaces a text, which must exist.
func Replacing(t *testing.T, old, new string) func(string) string {
	return func(text string) string {
		t.Helper()
		if !strings.Contains(text, old) {
			t.Fatalf("no %q in\n%s", old, text)
		}
		return strings.Replace(text, old, new, 1)
	}
}
