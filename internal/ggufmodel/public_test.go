package ggufmodel_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/ggufmodel"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// TestPublicPrograms compares files of all families with the public gguf package, and with llama.cpp where its
// sources (LLAMA_CPP) and its library (LLAMA_CPP_LIB, LLAMA_CPP_PYTHON) are: `make check-gguf PYTHON=…`. With
// TROUPE_GGUF_MODELS the models are
// those of a folder.
func TestPublicPrograms(t *testing.T) {
	python := os.Getenv("TROUPE_PYTHON")
	if python == "" {
		t.Skip("TROUPE_PYTHON is not set")
	}
	dir := os.Getenv("TROUPE_GGUF_MODELS")
	run := func(args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, python, append([]string{"-W", "ignore", "testdata/gguf_check.py"}, args...)...)
		cmd.Env = append(os.Environ(), "HF_HUB_DISABLE_PROGRESS_BARS=1", "TQDM_DISABLE=1", "TRANSFORMERS_VERBOSITY=error")
		out, err := cmd.CombinedOutput()
		t.Logf("%s: %s", args[0], out)
		if err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	if dir == "" {
		dir = t.TempDir()
		run("models", dir)
	}
	configs, err := filepath.Glob(filepath.Join(dir, "*", "config.json"))
	if err != nil || len(configs) == 0 {
		t.Fatalf("no models in %s: %v", dir, err)
	}
	configs = slices.DeleteFunc(configs, func(path string) bool { return strings.HasSuffix(filepath.Dir(path), ".back") }) // of an earlier run
	for _, path := range configs {
		for _, kind := range []string{"f32", "f16", "bf16", "q8_0"} {
			if err := convert(filepath.Dir(path), kind); err != nil {
				t.Errorf("%s: %s: %v", filepath.Dir(path), kind, err)
			}
		}
		if err := back(filepath.Dir(path)); err != nil {
			t.Errorf("%s: read again: %v", filepath.Dir(path), err)
		}
	}
	if os.Getenv("LLAMA_CPP") != "" {
		run("convert", dir)
	}
	run("check", dir)
	run("bits", dir)
	if os.Getenv("LLAMA_CPP_LIB") != "" {
		run("perplexity", dir)
	}
}

// convert writes NAME.KIND.gguf from the folder NAME, whatever Troupe itself can compute.
func convert(dir, kind string) (err error) {
	c, err := checkpoint.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	m := ggufmodel.Model{Name: "random", Type: kind}
	if m.Config, err = c.File("config.json"); err != nil {
		return err
	}
	text, err := c.File("tokenizer.json")
	if err != nil {
		return err
	}
	if m.Text.Tokenizer, err = tokenizer.Unmarshal(text); err != nil {
		return err
	}
	var special map[string]string
	if text, err = c.File("tokenizer_config.json"); err != nil {
		return err
	}
	if err := json.Unmarshal(text, &special); err != nil {
		return err
	}
	m.Text.Special = make(map[string]int32)
	for name, token := range special {
		if id, ok := m.Text.Tokenizer.TokenID(token); ok && strings.HasSuffix(name, "_token") {
			m.Text.Special[strings.TrimSuffix(name, "_token")] = id
		}
	}
	m.Text.Before, m.Text.After = m.Text.Tokenizer.Around()
	if text, err = c.File("chat_template.jinja"); err != nil {
		return err
	}
	m.Text.Template = string(text)
	for _, name := range c.Model().Names() {
		info, _ := c.Model().Info(name)
		data := func() ([]byte, error) { return c.Model().Bytes(name) }
		m.Tensors = append(m.Tensors, ggufmodel.Tensor{Name: name, DType: info.DType, Shape: info.Shape, Data: data})
	}
	p, _, err := ggufmodel.Write(m)
	if err != nil {
		return err
	}
	f, err := os.Create(dir + "." + kind + ".gguf")
	if err != nil {
		return err
	}
	_, err = p.WriteTo(f)
	return errors.Join(err, f.Close())
}

// back writes the folder NAME.back with what Troupe reads from NAME.f32.gguf.
func back(dir string) (err error) {
	c, err := ggufmodel.Open(dir + ".f32.gguf")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	content := checkpoint.Content{Files: make(map[string][]byte)}
	for _, name := range []string{"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} {
		if content.Files[name], err = c.File(name); err != nil {
			return err
		}
	}
	for _, name := range c.Model().Names() {
		info, _ := c.Model().Info(name)
		data, err := c.Model().Bytes(name)
		if err != nil {
			return err
		}
		content.Model = append(content.Model, tensorFrom(name, info.DType, info.Shape, data))
	}
	if err := os.RemoveAll(dir + ".back"); err != nil {
		return err
	}
	return checkpoint.Export(context.Background(), dir+".back", content)
}

func tensorFrom(name, dtype string, shape []int, data []byte) safetensors.Tensor {
	return safetensors.Tensor{Name: name, DType: dtype, Shape: shape, Data: data}
}
