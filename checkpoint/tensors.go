package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/internal/safetensors"
)

// Tensors are the named tensors of one or several files.
type Tensors struct {
	names  []string
	fileOf map[string]ModelFile
	files  []ModelFile
}

// Names returns the tensors' names, file by file in the order of their data.
func (t *Tensors) Names() []string { return slices.Clone(t.names) }

// Info returns a tensor's type, shape and place.
func (t *Tensors) Info(name string) (safetensors.Info, bool) {
	f, ok := t.fileOf[name]
	if !ok {
		return safetensors.Info{}, false
	}
	return f.Info(name)
}

// Bytes returns a tensor's bytes. They are valid until the checkpoint is closed and must not be
// written to.
func (t *Tensors) Bytes(name string) ([]byte, error) {
	f, ok := t.fileOf[name]
	if !ok {
		return nil, fmt.Errorf("the checkpoint has no tensor %q among its %d tensors", name, len(t.names))
	}
	return f.Bytes(name)
}

// Forget frees the memory of a tensor that was read. Its bytes stay valid: they are read from the file again.
func (t *Tensors) Forget(name string) {
	if f, ok := t.fileOf[name].(interface{ Forget(name string) }); ok {
		f.Forget(name)
	}
}

// Path returns the path of a tensor's file.
func (t *Tensors) Path(name string) string {
	if f, ok := t.fileOf[name]; ok {
		return f.Path()
	}
	return ""
}

// Float32 reads an F32, F16 or BF16 tensor. into must have exactly as many elements.
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

// Float32At reads elements of such a tensor, starting at element first.
func (t *Tensors) Float32At(name string, into []float32, first int) error {
	data, err := t.Bytes(name)
	if err != nil {
		return err
	}
	info, _ := t.Info(name)
	count := 1
	for _, d := range info.Shape {
		count *= d
	}
	if first < 0 || len(into) > count-first {
		return fmt.Errorf("tensor %q, %s %v: elements %d to %d do not exist; it has %d", name, info.DType, info.Shape, first, first+len(into),
			count)
	}
	width := 0
	if count > 0 {
		width = len(data) / count
	}
	if err := safetensors.DecodeFloat32(into, info.DType, data[first*width:(first+len(into))*width]); err != nil {
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

// openModel opens the model's file, or the shards that its index names, or the part of a model that a
// checkpoint has.
func (d *directory) openModel(m *Manifest) (*Tensors, error) {
	if m != nil && m.has(partName) {
		return d.openTensors(nil, partName)
	}
	whole, err := d.has(m, modelName)
	if err != nil {
		return nil, err
	}
	if whole {
		return d.openTensors(nil, modelName)
	}
	sharded, err := d.has(m, indexName)
	switch {
	case err != nil:
		return nil, err
	case !sharded && m != nil:
		return nil, faultf(Malformed, "%s: %w: the manifest lists neither %s nor %s", d.path(), ErrNotCheckpoint, modelName, indexName)
	case !sharded:
		return nil, fmt.Errorf("%s: %w: it has neither %s nor %s", d.path(), ErrNotCheckpoint, modelName, indexName)
	}
	shardOf, err := d.index()
	if err != nil {
		return nil, err
	}
	shards := slices.Compact(slices.Sorted(maps.Values(shardOf)))
	for _, shard := range shards {
		if m != nil && !m.has(shard) {
			return nil, faultf(Malformed, "%s names %s, but the manifest does not list it", d.fsys.Path(indexName), shard)
		}
	}
	return d.openTensors(shardOf, shards...)
}

// openTensors opens files of tensors. No tensor may occur twice. With an index, every tensor that
// it names must be in the given shard; other tensors of the shards are included, too.
func (d *directory) openTensors(shardOf map[string]string, files ...string) (*Tensors, error) {
	t := &Tensors{fileOf: make(map[string]ModelFile)}
	in := make(map[string]string) // file of each tensor
	for _, file := range files {
		f, err := d.openSafetensors(file)
		if err != nil {
			return nil, errors.Join(err, t.close())
		}
		t.files = append(t.files, f)
		for _, name := range f.Names() {
			if t.fileOf[name] != nil {
				err := faultf(Malformed, "%s has the tensor %s, but another shard has it, too", d.fsys.Path(file), strictjson.Quote(name))
				return nil, errors.Join(err, t.close())
			}
			t.names = append(t.names, name)
			t.fileOf[name], in[name] = f, file
		}
	}
	for name, shard := range shardOf {
		if in[name] != shard {
			err := faultf(Malformed, "%s has no tensor %s, although %s says so",
				d.fsys.Path(shard), strictjson.Quote(name), indexName)
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
	return tensors, asTensorFault(errors.Join(err, f.Close()))
}

// asTensorFault is asFault for the errors of the safetensors package.
func asTensorFault(err error) error {
	if errors.Is(err, safetensors.ErrFormat) || errors.Is(err, safetensors.ErrTruncated) {
		return &fault{Malformed, err}
	}
	return asFault(err)
}
