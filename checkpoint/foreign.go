package checkpoint

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/troupe-ml/troupe/internal/safetensors"
)

// ModelFile has the tensors of a model. A *safetensors.File is one.
type ModelFile interface {
	// Names returns the tensors' names in the order of their data.
	Names() []string
	Info(name string) (safetensors.Info, bool)
	// Bytes returns a tensor's bytes, which are valid until Close and must not be written to.
	Bytes(name string) ([]byte, error)
	Path() string
	Close() error
}

// FromModel returns a checkpoint of a model in another format than Hugging Face's folders, whose other
// files another package has made from it. It has no manifest. Close closes m.
func FromModel(files map[string][]byte, m ModelFile) *Checkpoint {
	t := &Tensors{names: m.Names(), fileOf: make(map[string]ModelFile), files: []ModelFile{m}}
	for _, name := range t.names {
		t.fileOf[name] = m
	}
	return &Checkpoint{foreign: files, path: m.Path(), model: t, optimizer: &Tensors{}}
}

// foreignFile returns one of the files of FromModel.
func (c *Checkpoint) foreignFile(name string) ([]byte, error) {
	data, ok := c.foreign[name]
	switch {
	case !ok:
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(c.path, name), Err: fs.ErrNotExist}
	case len(data) > FileBytesMax:
		return nil, fmt.Errorf("%s in %s has %d bytes; the limit is %d", name, c.path, len(data), FileBytesMax)
	}
	return data, nil
}
