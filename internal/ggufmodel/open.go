package ggufmodel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/gguf"
	"github.com/troupe-ml/troupe/internal/safetensors"
)

// HasExtension reports whether a path has the extension of GGUF files.
func HasExtension(path string) bool { return strings.EqualFold(filepath.Ext(path), ".gguf") }

// IsFile reports whether a path is meant as a GGUF file: it has the extension and is no folder.
func IsFile(path string) bool {
	info, err := os.Stat(path)
	return HasExtension(path) && (err != nil || !info.IsDir())
}

// OpenAt opens the model at a path: that of a GGUF file, or the checkpoint that the path refers to.
func OpenAt(path string) (*checkpoint.Checkpoint, error) {
	if !IsFile(path) {
		return checkpoint.OpenAt(path)
	}
	return Open(path)
}

// Open opens a GGUF file as a model's folder.
func Open(path string) (*checkpoint.Checkpoint, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	files, t, err := translate(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return checkpoint.FromModel(files, t), nil
}

// Files returns the text files of the model in a GGUF file.
func Files(path string) (files map[string][]byte, err error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	files, _, err = translate(f)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return files, errors.Join(err, f.Close())
}

// translate returns the files of a model, and its tensors under their names.
func translate(f *gguf.File) (files map[string][]byte, t *tensors, err error) {
	r, err := readConfig(f.Header, f.Bytes)
	if err != nil {
		return nil, nil, err
	}
	if files, err = readText(f.Header, r.config); err != nil {
		return nil, nil, err
	}
	if files["config.json"], err = r.json(); err != nil {
		return nil, nil, err
	}
	t = &tensors{file: f, byName: make(map[string]tensor), cached: make(map[string][]byte)}
	for _, info := range f.Tensors() {
		if err := t.add(r, info); err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", info.Name, err)
		}
	}
	return files, t, nil
}

// cachedTensors is the number of converted tensors that are kept. A rank reads the rows of its part one by
// one, of one tensor after the other.
const cachedTensors = 4

// tensors are the tensors of a GGUF file under the names of Hugging Face.
type tensors struct {
	file   *gguf.File
	names  []string
	byName map[string]tensor

	mu     sync.Mutex
	cached map[string][]byte
	order  []string // of cached
}

// tensor is one of them.
type tensor struct {
	info   safetensors.Info
	stored gguf.Info
	change change
	heads  int
	delta  deltaHeads
}

// add lists a tensor of the file.
func (t *tensors) add(r *reader, stored gguf.Info) error {
	switch stored.Name {
	case "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight": // they became part of config.json
		return nil
	}
	name, c, ok := r.arch.names.translated(stored.Name, false)
	if !ok {
		return fmt.Errorf("%w: Troupe's %s has no such tensor", ErrUnsupported, r.arch.families[0])
	}
	one := tensor{stored: stored, change: c}
	one.info = safetensors.Info{Name: name, DType: stored.Type.String(), Shape: stored.Shape}
	switch {
	case c == queryRows && r.arch.permuted:
		one.heads = r.heads
	case c == keyRows && r.arch.permuted:
		one.heads = r.kvHeads
	case c == transposed:
		one.info.Shape = swapped(stored.Shape)
	case c == normWeight && r.arch.onePlus:
	case c.isDelta():
		one.delta = r.delta
		if len(stored.Shape) == 0 {
			return errors.New("it has no rows")
		}
		if c == valueConv && len(stored.Shape) == 2 {
			one.info.Shape = []int{stored.Shape[0], 1, stored.Shape[1]}
		}
	default:
		one.change = same
	}
	if stored.Type == gguf.Q8_0 || one.change == normWeight || one.change == valueDecays {
		one.info.DType = "F32"
	}
	one.info.Size = int64(elementBytes(one.info.DType))
	for _, d := range one.info.Shape {
		one.info.Size *= int64(d) // at most twice the checked size of a tensor of the file
	}
	t.names = append(t.names, name)
	t.byName[name] = one
	return nil
}

// Names returns the names in the order of the file.
func (t *tensors) Names() []string { return t.names }

// Path returns the path of the file.
func (t *tensors) Path() string { return t.file.Path() }

// Info returns the type and the shape of a tensor.
func (t *tensors) Info(name string) (safetensors.Info, bool) {
	one, ok := t.byName[name]
	return one.info, ok
}

// Bytes returns a tensor's bytes, in the file or converted.
func (t *tensors) Bytes(name string) ([]byte, error) {
	one, ok := t.byName[name]
	if !ok {
		return nil, fmt.Errorf("%s has no tensor %q", t.Path(), name)
	}
	if one.change == same && one.stored.Type != gguf.Q8_0 {
		return t.file.Bytes(one.stored.Name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if data, ok := t.cached[name]; ok {
		return data, nil
	}
	data, err := t.converted(one)
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %q: %w", t.Path(), one.stored.Name, err)
	}
	if len(t.order) == cachedTensors {
		delete(t.cached, t.order[0])
		t.order = t.order[1:]
	}
	t.cached[name], t.order = data, append(t.order, name)
	return data, nil
}

func (t *tensors) converted(one tensor) ([]byte, error) {
	data, err := t.file.Bytes(one.stored.Name)
	dtype := one.stored.Type.String()
	if err == nil && one.stored.Type == gguf.Q8_0 {
		var values []float32
		values, err = t.file.Float32s(one.stored.Name)
		data, dtype = safetensors.EncodeFloat32(values), "F32"
	}
	if err != nil {
		return nil, err
	}
	switch one.change {
	case queryRows, keyRows:
		return interleaved(data, one.stored.Shape, one.heads, true)
	case transposed:
		return transpose(data, one.stored.Shape, elementBytes(dtype))
	case normWeight:
		return plus(dtype, data, -1)
	}
	if one.change.isDelta() {
		return one.delta.changed(one.change, dtype, data, one.stored.Shape[0], true)
	}
	return data, nil
}

// Close unmaps the file.
func (t *tensors) Close() error { return t.file.Close() }
