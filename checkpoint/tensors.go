package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/troupe-ml/troupe/checkpoint/internal/strictjson"
	"github.com/troupe-ml/troupe/checkpoint/safetensors"
)

// Tensors are the named tensors of one or several files.
type Tensors struct {
	names  []string
	fileOf map[string]*safetensors.File
	files  []*safetensors.File
}

// Names returns the tensors' names, file by file in the order of their data.
func (t *Tensors) Names() []string { return slices.Clone(t.names) }

// Info says what a tensor is.
func (t *Tensors) Info(name string) (safetensors.Info, bool) {
	f, ok := t.fileOf[name]
	if !ok {
		return safetensors.Info{}, false
	}
	return f.Info(name)
}

// Bytes returns a tensor's bytes, which are valid until the checkpoint is closed
// and must not be written to.
func (t *Tensors) Bytes(name string) ([]byte, error) {
	f, ok := t.fileOf[name]
	if !ok {
		return nil, fmt.Errorf("there is no tensor %q among the %d of the checkpoint", name, len(t.names))
	}
	return f.Bytes(name)
}

// Float32 reads an F32, F16 or BF16 tensor into memory that has to hold exactly
// its elements.
func (t *Tensors) Float32(name string, into []float32) error {
	data, err := t.Bytes(name)
	if err != nil {
		return err
	}
	info, _ := t.Info(name)
	if err := safetensors.DecodeFloat32(into, info.DType, data); err != nil {
		return fmt.Errorf("tensor %q, %s %v: %w", name, info.DType, info.Shape, err)
	}
	return nil
}

func (t *Tensors) close() error {
	var errs []error
	for _, f := range t.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// has tells whether the checkpoint has the file. A manifest has the last word:
// what it doesn't list was not verified.
func (d *directory) has(m *Manifest, name string) bool {
	if m != nil {
		return m.has(name)
	}
	return d.exists(name)
}

// openModel opens the model's file, or the shards that its index names.
func (d *directory) openModel(m *Manifest) (*Tensors, error) {
	if d.has(m, modelName) {
		return d.openTensors(nil, modelName)
	}
	if !d.has(m, indexName) {
		return nil, fmt.Errorf("%s: %w: neither %s nor %s is there", d.path, ErrNotCheckpoint, modelName, indexName)
	}
	shardOf, err := d.index()
	if err != nil {
		return nil, err
	}
	shards := slices.Compact(slices.Sorted(maps.Values(shardOf)))
	for _, shard := range shards {
		if !d.has(m, shard) {
			return nil, fmt.Errorf("%s, named in %s: %w", filepath.Join(d.path, shard), indexName, fs.ErrNotExist)
		}
	}
	return d.openTensors(shardOf, shards...)
}

// openTensors opens files of tensors. With an index, a tensor is the one in the
// shard that the index names, and all that it names have to be there.
func (d *directory) openTensors(shardOf map[string]string, files ...string) (*Tensors, error) {
	t := &Tensors{fileOf: make(map[string]*safetensors.File)}
	for _, file := range files {
		f, err := d.openSafetensors(file)
		if err != nil {
			return nil, errors.Join(err, t.close())
		}
		t.files = append(t.files, f)
		for _, name := range f.Names() {
			if shardOf == nil || shardOf[name] == file {
				t.names = append(t.names, name)
				t.fileOf[name] = f
			}
		}
	}
	for name, shard := range shardOf {
		if t.fileOf[name] == nil {
			err := fmt.Errorf("%s has no tensor %s, which %s says it has",
				filepath.Join(d.path, shard), strictjson.Quote(name), indexName)
			return nil, errors.Join(err, t.close())
		}
	}
	return t, nil
}

func (d *directory) openSafetensors(name string) (*safetensors.File, error) {
	f, err := d.open(name)
	if err != nil {
		return nil, err
	}
	tensors, err := safetensors.FromFile(f)
	return tensors, errors.Join(err, f.Close())
}
